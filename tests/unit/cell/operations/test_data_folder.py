"""Opening a data folder: creation, locking, and refusal of folders of other versions, cells or databases."""

from pathlib import Path

import pytest

from remuda.cell.errors import DataFolderError
from remuda.cell.operations.data_folder import STORE, open_folder


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_folder_is_created_and_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with open_folder(tmp_path / "a" / "b", cell_id=2) as folder:
            assert folder.repos.is_dir()
            assert (folder.path.stat().st_mode & 0o777) == 0o700


def test_a_folder_is_opened_once_at_a_time(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path, cell_id=1),
        pytest.raises(DataFolderError, match="in use"),
        open_folder(tmp_path, cell_id=1),
    ):
        pass
    with open_folder(tmp_path, cell_id=1):
        pass


@pytest.mark.parametrize(("file", "text"), [("version", "99"), ("version", "x"), ("version", ""), ("cell", "7")])
def test_a_refused_folder_does_not_change(tmp_path: Path, file: str, text: str) -> None:
    with open_folder(tmp_path, cell_id=1):
        pass
    (tmp_path / file).write_text(text)
    before = read_files(tmp_path)
    with pytest.raises(DataFolderError), open_folder(tmp_path, cell_id=1):
        pass
    assert read_files(tmp_path) == before


@pytest.mark.parametrize(
    ("file", "shared", "advice"), [("cell.sqlite", True, "without --database"), (STORE, False, "REMUDA_DATABASE")]
)
def test_a_folder_stays_with_its_kind_of_database(tmp_path: Path, file: str, shared: bool, advice: str) -> None:
    (tmp_path / file).touch()
    (tmp_path / "version").write_text("1")
    before = read_files(tmp_path)
    with pytest.raises(DataFolderError, match=advice), open_folder(tmp_path, cell_id=1, shared=shared):
        pass
    after = read_files(tmp_path)
    after.pop("lock", None)
    assert after == before
    with open_folder(tmp_path, cell_id=1, shared=not shared):
        pass
