"""Settings from the OpenTelemetry environment variables."""

import pytest

from remuda.telemetry.otlp_settings import OtlpError, OtlpSettings, hide_password, is_enabled, read_otlp_settings

ALL, TRACES = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
ENDPOINT = {f"{ALL}ENDPOINT": "http://collector:4318/"}


def settings(**variables: str) -> OtlpSettings:
    return read_otlp_settings(ENDPOINT | variables, service="remuda")


def test_export_is_disabled_without_an_endpoint() -> None:
    assert not is_enabled({})
    assert not is_enabled({f"{ALL}HEADERS": "a=b"})
    assert is_enabled(ENDPOINT)
    assert is_enabled({f"{TRACES}ENDPOINT": "http://x/"})
    assert not is_enabled(ENDPOINT | {"OTEL_SDK_DISABLED": "True"})
    assert not is_enabled(ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"})
    assert is_enabled(ENDPOINT | {"OTEL_TRACES_EXPORTER": "otlp"})


def test_a_path_is_added_to_the_general_endpoint_but_not_to_that_of_traces() -> None:
    assert settings().url == "http://collector:4318/v1/traces"
    assert settings(**{f"{TRACES}ENDPOINT": "https://traces.example/in"}).url == "https://traces.example/in"


def test_other_variables() -> None:
    assert settings(
        **{
            f"{ALL}HEADERS": "api-key=a%20b, x = y ,broken,=z",
            f"{ALL}COMPRESSION": "none",
            f"{TRACES}COMPRESSION": "gzip",
            f"{ALL}TIMEOUT": "2500",
            f"{ALL}CERTIFICATE": "/ca.pem",
            f"{ALL}PROTOCOL": "http/protobuf",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment.name=lab",
        }
    ) == OtlpSettings(
        url="http://collector:4318/v1/traces",
        headers={"api-key": "a b", "x": "y"},
        is_compressed=True,
        timeout_seconds=2.5,
        ca_file="/ca.pem",
        resource={"service.name": "other", "deployment.environment.name": "lab"},
    )
    assert settings(OTEL_SERVICE_NAME="ci", OTEL_RESOURCE_ATTRIBUTES="service.name=x").resource == {
        "service.name": "ci"
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ENDPOINT", "collector:4318", "not an http or https address"),
        ("PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL to http/json"),
        ("COMPRESSION", "zstd", "is not supported; use gzip or none"),
        ("TIMEOUT", "soon", "milliseconds"),
        ("TIMEOUT", "0", "milliseconds"),
    ],
)
def test_unsupported_values_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(OtlpError, match=words):
        settings(**{ALL + name: value})


def test_an_address_is_shown_without_its_secrets() -> None:
    assert hide_password("https://user:secret@host:1/v1/traces?key=secret") == "https://host:1/v1/traces"
