from pathlib import Path

import pytest

from remuda.cell.errors import CellError
from remuda.cli.cell.serve import serve
from remuda.cli.cell.settings import CellOptions, settings_from, warnings_about
from remuda.lib.exits import BadInputError


def test_settings_come_from_options_and_the_environment(tmp_path: Path) -> None:
    environment = {
        "REMUDA_ADMIN_TOKEN": "a-long-enough-token",
        "REMUDA_LEASE_SECONDS": "1.5",
        "REMUDA_ARTIFACT_LIMIT_BYTES": "1000",
        "REMUDA_REMOTE_INCLUDES": "https://a.example/ci/, https://b.example  http://c.example:81/",
        "REMUDA_PORT": "1",
        "REMUDA_PUBLIC_URL": "",
    }
    settings = settings_from(environment, data=tmp_path, host="127.0.0.1", port=8000, cell_id=2)
    assert (settings.data, settings.host, settings.port, settings.cell_id) == (tmp_path, "127.0.0.1", 8000, 2)
    assert settings.admin_token == "a-long-enough-token"
    assert settings.lease_seconds == 1.5
    assert settings.artifact_limit_bytes == 1000
    assert settings.remote_includes == ("https://a.example/ci/", "https://b.example", "http://c.example:81/")
    assert settings.url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REMUDA_REMOTE_INCLUDES", "example.com"),
        ("REMUDA_REMOTE_INCLUDES", "https://user@example.com/"),
        ("REMUDA_PIPELINES_PER_PUSH", "-1"),
    ],
)
def test_invalid_pipeline_settings_are_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(CellError, match=name.removeprefix("REMUDA_").lower().replace("_", " ")):
        settings_from({name: value}, data=tmp_path, host="h", port=1)


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="REMUDA_LEASE_SECONDS=soon"):
        settings_from({"REMUDA_LEASE_SECONDS": "soon"}, data=tmp_path, host="h", port=1)


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellError, match="too short"):
        settings_from({"REMUDA_ADMIN_TOKEN": "x"}, data=tmp_path, host="h", port=1)


@pytest.mark.parametrize("database", ["user:secret@host/db", "mysql://user:secret@x", "sqlite:///other/file"])
def test_other_databases_are_refused(tmp_path: Path, database: str) -> None:
    with pytest.raises(CellError, match="postgresql://") as caught:
        serve(cell=CellOptions(data=tmp_path, database=database))
    assert "secret" not in str(caught.value)


def test_the_database_comes_from_the_option_else_from_the_environment(tmp_path: Path) -> None:
    environment = {"REMUDA_DATABASE": "postgresql://a/b"}
    assert settings_from(environment, data=tmp_path).database == "postgresql://a/b"
    assert settings_from(environment, data=tmp_path, database="sqlite://").is_shared is False
    assert settings_from({}, data=tmp_path).database == ""


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("REMUDA_LEASE_SECONDS=abc", "must be a number above 0, for example 60"),
        ("REMUDA_LEASE_SECONDS=-5", "must be a number above 0, for example 60"),
        ("REMUDA_LEASE_SECONDS=nan", "must be a number above 0, for example 60"),
        ("REMUDA_BODY_LIMIT_BYTES=1.5", "must be a whole number above 0, for example 1048576"),
        ("REMUDA_BODY_LIMIT_BYTES=0", "must be a whole number above 0, for example 1048576"),
        ("REMUDA_POLL_HOLD_SECONDS=-1", "must be a number of at least 0, for example 50"),
    ],
)
def test_an_invalid_variable_is_reported_with_the_expected_form(tmp_path: Path, variable: str, message: str) -> None:
    name, _, value = variable.partition("=")
    with pytest.raises(BadInputError) as caught:
        settings_from({name: value}, data=tmp_path, host="h", port=1)
    assert str(caught.value) == f"{variable}: {message}"


def test_unknown_variables_are_named_with_the_nearest_right_name() -> None:
    fine = ("LEASE_SECONDS", "ADMIN_TOKEN", "URL", "TOKEN", "DEBUG", "KILL_POINT", "KILL_MARK", "LOG_LEVEL")
    assert warnings_about({f"REMUDA_{name}": "x" for name in fine} | {"HOME": "x"}) == []
    assert warnings_about({"REMUDA_LEASE_SECOND": "5", "REMUDA_XYZZY": "1", "REMUDA_PORT": "1"}) == [
        "REMUDA_LEASE_SECOND: there is no such setting; did you mean REMUDA_LEASE_SECONDS?",
        "REMUDA_PORT: has no effect; use --data, --listen and --cell-id",
        "REMUDA_XYZZY: there is no such setting",
    ]
