from pathlib import Path

import pytest

from remuda.cli.options import listen_address
from remuda.lib.exits import BadInputError
from remuda.localrun.data_folder import data_folder, platform_folder, usable_folder


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


@pytest.mark.parametrize(
    ("folder", "message"), [("/etc/passwd", "is a file; give a folder"), ("/proc/x", "cannot be made: No such file")]
)
def test_a_folder_that_cannot_be_used_is_refused(folder: str, message: str) -> None:
    with pytest.raises(BadInputError, match=f"--data {folder}: {message}"):
        usable_folder(Path(folder), "--data")


def test_a_folder_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / ".hidden").touch()
    with pytest.raises(BadInputError, match=r"--data .*photos"):
        platform_folder(tmp_path, "--data")
    (tmp_path / "photos").rename(tmp_path / "cell")
    assert platform_folder(tmp_path, "--data") == tmp_path
    (tmp_path / "client.json").touch()
    (tmp_path / "mine").touch()
    assert platform_folder(tmp_path, "--data") == tmp_path
    assert platform_folder(tmp_path / "new" / "er", "--data").is_dir()


def test_a_repository_is_refused_as_data_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitlab-ci.yml").touch()
    with pytest.raises(BadInputError, match=r"--data .*\.git"):
        platform_folder(tmp_path, "--data")
