"""Settings of the span exporter, read from OpenTelemetry's environment variables. Pure. A variable for traces takes
precedence over the one for all signals."""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

DEFAULT_TIMEOUT_SECONDS = 10.0
_ALL, _TRACES = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
_PROTOCOLS = ("", "http/json", "http/protobuf")


class OtlpError(ValueError):
    """An OpenTelemetry variable has a value that cannot be used; the text says what to do."""


class OtlpSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    headers: Mapping[str, str] = {}
    is_compressed: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ca_file: str = ""
    resource: Mapping[str, str] = {}
    """Resource attributes: `service.name` and those of OTEL_RESOURCE_ATTRIBUTES."""


def is_enabled(environment: Mapping[str, str]) -> bool:
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER", "").split(",")
    is_named = bool(environment.get(f"{_TRACES}ENDPOINT") or environment.get(f"{_ALL}ENDPOINT"))
    return is_named and not is_off and "none" not in map(str.strip, exporters)


def read_otlp_settings(environment: Mapping[str, str], *, service: str) -> OtlpSettings:
    """Read the settings. `service`: the service's name if no variable sets it. Raises OtlpError if one is invalid."""

    def read_variable(name: str) -> str:
        return (environment.get(_TRACES + name) or environment.get(_ALL + name) or "").strip()

    url = environment.get(f"{_TRACES}ENDPOINT", "").strip()
    if not url:
        url = f"{environment.get(f'{_ALL}ENDPOINT', '').strip().rstrip('/')}/v1/traces"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OtlpError("the OTLP endpoint is not an http or https address; write for example http://host:4318")
    if read_variable("PROTOCOL") not in _PROTOCOLS:
        raise OtlpError(
            f"the OTLP protocol {read_variable('PROTOCOL')!r} is not supported; set OTEL_EXPORTER_OTLP_PROTOCOL to "
            "http/json, and the endpoint to the receiver's port for HTTP, mostly 4318"
        )
    if read_variable("COMPRESSION") not in ("", "none", "gzip"):
        raise OtlpError(f"the OTLP compression {read_variable('COMPRESSION')!r} is not supported; use gzip or none")
    resource = {"service.name": service} | _parse_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if name := environment.get("OTEL_SERVICE_NAME", "").strip():
        resource["service.name"] = name
    return OtlpSettings(
        url=url,
        headers=_parse_pairs(read_variable("HEADERS")),
        is_compressed=read_variable("COMPRESSION") == "gzip",
        timeout_seconds=_seconds(read_variable("TIMEOUT")),
        ca_file=read_variable("CERTIFICATE"),
        resource=resource,
    )


def hide_password(url: str) -> str:
    """The address without user name, password and query, which may be secret, for logs."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _parse_pairs(text: str) -> dict[str, str]:
    """Parse `name=value,name=value` with percent-encoding. Entries without a name or without `=` are ignored."""
    pairs = (part.partition("=") for part in text.split(","))
    return {unquote(name.strip()): unquote(value.strip()) for name, sign, value in pairs if sign and name.strip()}


def _seconds(milliseconds: str) -> float:
    if not milliseconds:
        return DEFAULT_TIMEOUT_SECONDS
    if not milliseconds.isascii() or not milliseconds.isdigit() or int(milliseconds) == 0:
        raise OtlpError(f"the OTLP timeout {milliseconds!r} is not a positive number of milliseconds")
    return int(milliseconds) / 1000
