import stat
from pathlib import Path

import pytest

from remuda.cli.access.cell_address import CellAddress, find_access
from remuda.cli.access.profiles import Profile, Profiles
from remuda.lib.exits import BadInputError
from remuda.localrun.client_file import FILE_NAME, Access, read_access, write_access

STORED = Access(url="http://127.0.0.1:8929", token="glpat-kept")


def test_stored_access_is_read_back_and_its_file_is_private(tmp_path: Path) -> None:
    write_access(tmp_path / "new", STORED)
    assert read_access(tmp_path / "new") == STORED
    assert stat.S_IMODE((tmp_path / "new" / FILE_NAME).stat().st_mode) == 0o600


def test_nothing_stored_is_no_error(tmp_path: Path) -> None:
    assert read_access(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", '{"url": 1}', '{"version": 2, "url": "u", "token": "t"}'])
def test_a_damaged_or_newer_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(BadInputError, match=FILE_NAME):
        read_access(tmp_path)


def test_options_win_over_environment_and_environment_over_the_file() -> None:
    environment = {"REMUDA_URL": "http://two", "REMUDA_TOKEN": "second"}
    assert find_access(url=None, stored=STORED, environment={}) == STORED
    assert find_access(url=None, stored=STORED, environment=environment).url == "http://two"
    assert find_access(url="http://three/", stored=STORED, environment=environment) == Access(
        url="http://three", token="second"
    )


def test_a_stored_token_goes_only_to_its_own_cell() -> None:
    with pytest.raises(BadInputError, match="no token for the cell at http://elsewhere"):
        find_access(url="http://elsewhere", stored=STORED, environment={})


def test_without_a_cell_the_fix_is_named() -> None:
    with pytest.raises(BadInputError, match="remuda up"):
        find_access(url=None, stored=None, environment={})


def test_a_data_folder_without_a_platform_selects_no_other_cell() -> None:
    profiles = Profiles(current="work", profiles={"work": Profile(url="http://work", token="glpat-work")})
    assert find_access(url=None, stored=STORED, environment={}, profiles=profiles, stored_first=True) == STORED
    with pytest.raises(BadInputError, match="--data"):
        find_access(url=None, stored=None, environment={}, profiles=profiles, stored_first=True)


def test_a_data_folder_wins_over_variables_and_profiles() -> None:
    profiles = Profiles(current="work", profiles={"work": Profile(url="http://work", token="glpat-work")})
    for environment in (
        {"REMUDA_PROFILE": "work"},
        {"REMUDA_URL": "http://two"},
        {"REMUDA_URL": "http://two", "REMUDA_TOKEN": "of-two"},
    ):
        found = find_access(url=None, stored=STORED, environment=environment, profiles=profiles, stored_first=True)
        assert found == STORED
    for environment in ({"REMUDA_TOKEN": "glpat-anna"}, {"REMUDA_URL": f"{STORED.url}/", "REMUDA_TOKEN": "glpat-anna"}):
        found = find_access(url=None, stored=STORED, environment=environment, profiles=profiles, stored_first=True)
        assert found == Access(url=STORED.url, token="glpat-anna")
    chosen = find_access(url="http://work", stored=STORED, environment={}, profiles=profiles, stored_first=True)
    assert chosen.url == "http://work"


@pytest.mark.parametrize(
    "url", ["ftp://x", "x:80", "http://", "http://[", "http://x:99999", "http://\udcff", "127.0.0.1:8929"]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="http:// or https://"):
        find_access(url=url, stored=None, environment={"REMUDA_TOKEN": "token"})


@pytest.mark.parametrize("token", ["glpat-x\n", "two words", "t\u00f6ken", "\x07"])
def test_a_token_that_no_header_could_hold_is_refused(token: str) -> None:
    with pytest.raises(BadInputError, match="REMUDA_TOKEN") as caught:
        find_access(url="http://x", stored=None, environment={"REMUDA_TOKEN": token})
    assert token not in str(caught.value)


def test_damaged_files_do_not_matter_if_address_and_token_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("REMUDA_TOKEN", "token")
    monkeypatch.delenv("REMUDA_URL", raising=False)
    for file in (tmp_path / "remuda" / "profiles.json", tmp_path / "data" / FILE_NAME):
        file.parent.mkdir()
        file.write_text("{")
        file.chmod(0o600)
    address = CellAddress(url="http://one", data=tmp_path / "data")
    assert address.find() == Access(url="http://one", token="token")
    with pytest.raises(BadInputError, match=r"profiles\.json"):
        CellAddress(profile="work", data=tmp_path / "data").find()
    monkeypatch.delenv("REMUDA_TOKEN")
    with pytest.raises(BadInputError, match=r"profiles\.json"):
        address.find()
