from pathlib import Path

import pytest

from remuda.cli.exits import BadInputError
from remuda.cli.options import data_folder, listen_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8929", ("127.0.0.1", 8929)), ("[::1]:0", ("::1", 0)), ("localhost:65535", ("localhost", 65535))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "8929", ":8929", "host:", "host:http", "host:70000", "host:-1"])
def test_a_bad_address_is_named_with_the_right_form(text: str) -> None:
    with pytest.raises(BadInputError, match="HOST:PORT"):
        listen_address(text)


def test_the_default_data_folder_is_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_folder(None) == tmp_path / "remuda"
    assert data_folder(Path("/srv/x")) == Path("/srv/x")
