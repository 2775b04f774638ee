"""A cell's files are readable by its user only; a lost or damaged database is reported and never replaced."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remuda.cell.errors import DataFolderError
from remuda.cell.operations.data_folder import open_folder
from remuda.cell.store.sqlite.store import SqliteStore


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Set the umask to 0, so that new files are readable by everybody unless the cell prevents it."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("cell.sqlite*")}


async def test_a_new_database_is_private_from_the_beginning(tmp_path: Path, no_umask: None) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    await store.check_writable()
    assert modes(tmp_path) == dict.fromkeys(("cell.sqlite", "cell.sqlite-wal", "cell.sqlite-shm"), 0o600)
    await store.close()


async def test_a_readable_database_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    other = SqliteStore.open(path, 1)
    await other.check_writable()
    for name in modes(tmp_path):
        (tmp_path / name).chmod(0o644)
    store = SqliteStore.open(path, 1)
    assert set(modes(tmp_path).values()) == {0o600}
    await store.close()
    await other.close()


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _put_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _write_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove, "is missing.*restore"),
        (_empty, "is empty.*restore"),
        (_put_a_folder, "a folder is in its place.*restore"),
        (_write_garbage, "not a database.*restore"),
    ],
    ids=["removed", "emptied", "a folder", "garbage"],
)
async def test_a_lost_database_is_not_replaced(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    with open_folder(tmp_path / "cell", cell_id=1) as folder:
        await SqliteStore.open(folder.database, 1).close()
        (folder.repos / "HEAD").touch()
    damage(folder.database)
    before = sorted(path.name for path in folder.path.iterdir())
    with pytest.raises(DataFolderError, match=f"(?s){message}"), open_folder(folder.path, cell_id=1) as again:
        SqliteStore.open(again.database, 1)
    assert sorted(path.name for path in folder.path.iterdir()) == before


async def test_a_start_that_died_before_the_database_existed_can_be_repeated(tmp_path: Path) -> None:
    with open_folder(tmp_path / "cell", cell_id=1):
        pass
    with open_folder(tmp_path / "cell", cell_id=1) as folder:
        folder.database.touch()
    with open_folder(tmp_path / "cell", cell_id=1) as folder:
        await SqliteStore.open(folder.database, 1).close()
    with sqlite3.connect(folder.database) as db:
        assert db.execute("select count(*) from jobs").fetchone() == (0,)
    db.close()
