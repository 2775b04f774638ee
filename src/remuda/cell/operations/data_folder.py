"""Checks and locks the data folder of a cell, and provides the paths of everything in it.

The lock is an flock, which the kernel drops when the process dies. With a SQLite database one process holds it; with
PostgreSQL several processes share it, but the first one holds it alone until its start is done. A folder is rejected if
a newer release has written it, if it has files that are not of a cell, if its database is lost, or if it is used with
the wrong kind of database.

Invariant: in a folder that is rejected, nothing but the lock file is changed."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from remuda.cell.errors import DataFolderError
from remuda.lib.files import InUseError, hold_lock, hold_shareable_lock, write_whole

VERSION = 1
"""The number of the layout; a higher one cannot be used by older programs."""
CONFIG = "cell.toml"
"""An optional file with settings."""
STORE = "store"
"""A file in a folder whose rows are in a database, with the id of that store (`blob_ownership`)."""
UNFINISHED = "unfinished"
"""A file in a folder that a backup or restore has begun to fill."""
_BEFORE_VERSION = ("lock", "lost+found", "cell.sqlite", CONFIG, "encryption.keys")
"""What may be in a folder without a version file: the rest of a start that died early, the content of a new disk, a
restored database, keys and settings."""


class DataFolder:
    """The paths of the files and folders in a locked data folder."""

    def __init__(self, path: Path, share: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.share = share
        """Call when the work that only one process may do is done; no effect if the folder is not shared."""
        self.database = path / "cell.sqlite"
        self.repos = path / "repos"
        self.hooks = path / "hooks"
        self.traces = path / "traces"
        self.blobs = path / "blobs"
        self.looking = path / "looking"
        self.presence = path / "presence"


@contextmanager
def open_folder(path: Path, *, cell_id: int, shared: bool = False) -> Iterator[DataFolder]:
    """Context manager: check the data folder and lock it for the duration of the block; a missing folder is created.
    `shared`: several processes may hold the lock. Raises DataFolderError, which says why the folder cannot be used and
    what to do."""
    with ExitStack() as stack:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_ours(path)
            folder = DataFolder(path)
            if shared:
                folder.share = stack.enter_context(hold_shareable_lock(path / "lock")).share
            else:
                stack.enter_context(hold_lock(path / "lock"))
            _check_kind(folder, shared=shared)
            if not shared:
                _check_database(folder)
            _prepare(folder, cell_id)
        except InUseError as error:
            raise DataFolderError(
                f"the data folder {path} is in use by another process (process {error.holder}); "
                "stop it or give another --data"
            ) from None
        except OSError as error:
            raise _unusable(path, error) from error
        yield folder


def check_is_cell(path: Path) -> None:
    """Raise DataFolderError if the folder is not the data folder of a cell."""
    if not (path / "version").exists():
        raise DataFolderError(f"the folder {path} is not a cell's; give the data folder of the cell with --data")


def _prepare(folder: DataFolder, cell_id: int) -> None:
    path = folder.path
    _check_version(path)
    _check_cell(path, cell_id)
    with suppress(PermissionError):
        path.chmod(0o700)
    for place in (folder.repos, folder.hooks, folder.traces, folder.blobs):
        place.mkdir(mode=0o700, exist_ok=True)


def _unusable(path: Path, error: OSError) -> DataFolderError:
    return DataFolderError(
        f"the data folder {path} cannot be used: {error.strerror}; free space, correct its permissions, "
        "or give another --data"
    )


def _check_ours(path: Path) -> None:
    """Raise DataFolderError for files not of a cell or an unfinished restore: a mistyped --data must change nothing."""
    if (path / UNFINISHED).exists():
        raise DataFolderError(
            f"a restore into {path} was not finished; run `remuda cell restore` again, or give another --data"
        )
    if (path / "version").exists():
        return
    names = sorted(entry.name for entry in path.iterdir())
    foreign = [
        name for name in names if not name.startswith((".", *_BEFORE_VERSION)) and not _is_empty_repos(path / name)
    ]
    if foreign:
        raise DataFolderError(
            f"the folder {path} is not a cell's (it has {', '.join(foreign[:3])}); "
            "give an empty or a new one with --data"
        )


def _is_empty_repos(place: Path) -> bool:
    """True if `place` is an empty folder `repos`. It may exist before the first start of a cell, for example as a mount
    point."""
    return place.name == "repos" and place.is_dir() and not any(place.iterdir())


def _check_kind(folder: DataFolder, *, shared: bool) -> None:
    """Raise DataFolderError if --database (`shared`) is given for a folder with a SQLite database, or is missing for a
    folder of a PostgreSQL cell: the cell would start with no rows and delete all blobs."""
    path = folder.path
    if shared and folder.database.exists():
        raise DataFolderError(
            f"the data folder {path} is a cell's that keeps its rows in {folder.database.name}; start it without "
            "--database, or move it with `remuda cell backup` and `remuda cell restore --database`"
        )
    if not shared and (path / STORE).exists():
        raise DataFolderError(
            f"the data folder {path} is a cell's that keeps its rows in a PostgreSQL database; give that with "
            "--database or REMUDA_DATABASE, or another --data"
        )


def _check_database(folder: DataFolder) -> None:
    """Raise DataFolderError if the SQLite database is lost while other files of the cell exist: the cell would start
    with no rows and delete those files. A first start that died early has left no files, and is accepted."""
    database = folder.database
    if database.is_dir():
        problem = "cannot be used: a folder is in its place"
    elif not database.exists():
        problem = "is missing"
    elif database.stat().st_size == 0:
        problem = "is empty"
    else:
        return
    places = (folder.repos, folder.blobs, folder.traces)
    if database.is_dir() or any(files for place in places for _, _, files in os.walk(place)):
        raise DataFolderError(
            f"the cell's database {database} {problem}, while the rest of its data is there; restore a backup into a "
            "new folder with `remuda cell restore`, or give an empty folder with --data to begin a new cell"
        )


def _check_version(path: Path) -> None:
    number = _read_number(path / "version")
    if number is None:
        write_whole(path / "version", f"{VERSION}\n".encode())
    elif number > VERSION:
        raise DataFolderError(
            f"the data folder {path} has version {number}, this program knows versions up to {VERSION}; "
            "use the newer Remuda that wrote it, or give another --data"
        )


def _check_cell(path: Path, cell_id: int) -> None:
    """Store the cell id in a new data folder. Raises DataFolderError if it belongs to a cell with another id."""
    number = _read_number(path / "cell")
    if number is None:
        write_whole(path / "cell", f"{cell_id}\n".encode())
    elif number != cell_id:
        raise DataFolderError(
            f"the data folder {path} belongs to cell {number}, not {cell_id}; start it with --cell-id {number}, "
            "or give another --data"
        )


def _read_number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except FileNotFoundError:
        return None
    if not text.isascii() or not text.isdigit():
        raise DataFolderError(f"{file} does not contain a number; it is damaged, or the file of another program")
    return int(text)
