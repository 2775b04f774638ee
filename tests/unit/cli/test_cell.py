from pathlib import Path

import pytest

from remuda.cell.errors import CellError
from remuda.cli.cell import serve, settings_from
from remuda.cli.exits import BadInputError


def test_settings_come_from_options_and_the_environment(tmp_path: Path) -> None:
    environment = {
        "REMUDA_ADMIN_TOKEN": "a-long-enough-token",
        "REMUDA_LEASE_SECONDS": "1.5",
        "REMUDA_ARTIFACT_LIMIT_BYTES": "1000",
        "REMUDA_PORT": "1",
        "REMUDA_PUBLIC_URL": "",
    }
    settings = settings_from(environment, data=tmp_path, host="127.0.0.1", port=8000, cell_id=2)
    assert (settings.data, settings.host, settings.port, settings.cell_id) == (tmp_path, "127.0.0.1", 8000, 2)
    assert settings.admin_token == "a-long-enough-token"
    assert settings.lease_seconds == 1.5
    assert settings.artifact_limit_bytes == 1000
    assert settings.url == "http://127.0.0.1:8000"


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="REMUDA_LEASE_SECONDS=soon"):
        settings_from({"REMUDA_LEASE_SECONDS": "soon"}, data=tmp_path, host="h", port=1)


def test_a_token_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellError, match="too short"):
        settings_from({"REMUDA_ADMIN_TOKEN": "x"}, data=tmp_path, host="h", port=1)


@pytest.mark.parametrize("database", ["postgresql://user:secret@host/db", "mysql://x", "sqlite:///other/file"])
def test_other_databases_are_not_supported_yet(tmp_path: Path, database: str) -> None:
    with pytest.raises(BadInputError, match="--database") as caught:
        serve(data=tmp_path, database=database)
    assert "secret" not in str(caught.value)
