"""Copies the files of a backup while the cell runs, and packs and unpacks archives.

Folders are copied in the order in which the cell moves files between them, so that a file that moves during the copy is
still found. If a backup fails, its folder is emptied, at the latest by the next attempt, so an incomplete backup is
never used."""

import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations.data_folder import UNFINISHED
from remuda.lib.files import InUseError, hold_lock, sync, sync_folder

ARCHIVES = (".tar", ".tar.gz", ".tgz")
_BESIDE = ".remuda-backup-"
_LOCK = "lock"
_NO_ARCHIVES = (".zip", ".gz", ".bz2", ".xz", ".zst", ".7z")


@contextmanager
def fill_folder(folder: Path, *, keeps: Iterable[str] = ()) -> Iterator[None]:
    """Context manager around a block that fills a folder. The folder must be new, empty, or left by a failed attempt.
    Raises DataFolderError if it is not, or if another process is filling it. If the block fails, the folder is emptied
    again. `keeps`: names of entries that may exist in the folder and are not touched."""
    untouched = {"lost+found", *keeps}
    is_new = not folder.exists()
    if not (folder / UNFINISHED).exists():
        _check_empty(folder, untouched)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with hold_lock(folder / UNFINISHED):
            _clear(folder, untouched | {UNFINISHED})
            try:
                yield
            except BaseException:
                _clear(folder, untouched)
                if is_new:
                    with suppress(OSError):
                        folder.rmdir()
                raise
            (folder / UNFINISHED).unlink()
    except InUseError as error:
        raise DataFolderError(f"another process (process {error.holder}) writes to {folder}; wait for it") from None


def _check_empty(folder: Path, allowed: Iterable[str]) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataFolderError(f"{folder} is a file; give an empty or a new folder")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name not in allowed)
    if names:
        raise DataFolderError(f"{folder} is not empty (it has {', '.join(names[:3])}); give an empty or a new folder")


def _clear(folder: Path, untouched: Iterable[str]) -> None:
    for entry in folder.iterdir():
        if entry.name not in untouched:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink(missing_ok=True)


def copy_traces(traces: Path, to: Path) -> None:
    """Copy the logs of a running cell: of running jobs, then `archive`, to which the cell moves those of ended jobs."""
    copy(traces.glob("*.log"), traces, to)
    copy((traces / "archive").glob("*.log"), traces, to)
    for sealed in (to / "archive").glob("*.log"):
        (to / sealed.name).unlink(missing_ok=True)


def copy(files: Iterable[Path], root: Path, to: Path) -> None:
    """Copy `files` to the folder `to`, with the same paths relative to `root`. A file that disappeared is skipped."""
    for file in files:
        target = to / file.relative_to(root)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            shutil.copyfile(file, target)
        except FileNotFoundError:
            if not target.parent.exists():
                raise


def copy_repository(repo: Path, to: Path) -> None:
    """Copy a git repository that may be in use: first refs, then loose objects, then packs. git moves data only in this
    direction, so the copy has every object that its refs need."""

    def files(is_selected: Callable[[Path], bool]) -> Iterator[Path]:
        for file in list(repo.rglob("*")):
            if file.is_file() and not file.name.endswith(".lock") and is_selected(file.relative_to(repo)):
                yield file

    copy(files(lambda path: path.parts[0] == "refs"), repo, to)
    copy(files(lambda path: path.parts[0] not in ("refs", "objects")), repo, to)
    copy(files(lambda path: path.parts[0] == "objects" and path.parts[1] != "pack"), repo, to)
    copied: set[Path] = set()
    while new := {file for file in (repo / "objects" / "pack").glob("*") if file.is_file()} - copied:
        copy(sorted(new), repo, to)
        copied |= new
    for folder in ("refs/heads", "refs/tags", "objects"):
        (to / folder).mkdir(mode=0o700, parents=True, exist_ok=True)


def is_archive(path: Path) -> bool:
    """True if the name ends in .tar, .tar.gz or .tgz, else False (a folder). CellError for other archives (.zip)."""
    if path.name.endswith(ARCHIVES):
        return True
    if path.name.endswith(_NO_ARCHIVES):
        raise CellError(
            f"{path}: this kind of archive is not supported; give a name that ends in {', '.join(ARCHIVES)}"
        )
    return False


def pack(folder: Path, to: Path) -> None:
    """Write a folder to the archive `to`, which appears only when it is complete."""
    aside = folder.parent / "packed"
    with tarfile.open(aside, "w" if to.name.endswith(".tar") else "w:gz") as packed:
        packed.add(folder, arcname=".")
    aside.chmod(0o600)
    # The caller may remove older backups next.
    with aside.open("rb") as file:
        sync(file.fileno())
    aside.rename(to)
    sync_folder(to.parent)


@contextmanager
def make_folder_beside(to: Path) -> Iterator[Path]:
    """Context manager: yield a new folder beside `to`, which is removed after the block. Before, those are removed that
    processes left which were killed in the block."""
    for left in to.parent.glob(f"{_BESIDE}*"):
        # Not found: its own process ends at the same time, and removes it.
        with suppress(InUseError, FileNotFoundError):
            status = left.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and (left / _LOCK).exists():
                with hold_lock(left / _LOCK):
                    shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=_BESIDE, ignore_cleanup_errors=True) as name:
        new = Path(name) / "new"
        with hold_lock(new):
            # Others look for the lock only under its later name, so they never find it without its holder.
            new.rename(Path(name) / _LOCK)
            yield Path(name)


@contextmanager
def unpack(source: Path, beside: Path) -> Iterator[Path]:
    """Context manager: yield the folder of the backup `source`. An archive is unpacked into a temporary folder below
    `beside`, which is removed after the block; a folder is used as it is. Raises CellError if the archive cannot be
    read."""
    if not source.name.endswith(ARCHIVES):
        yield source
        return
    beside.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside, prefix=".remuda-restore-") as folder:
        try:
            with tarfile.open(source) as packed:
                # The check below replaces the filter: Python before 3.11.4 has none, and later ones differ in theirs.
                packed.extraction_filter = lambda member, _path: member
                for member in packed:
                    _check_member(member)
                    packed.extract(member, folder, set_attrs=False)
        except (tarfile.TarError, FileNotFoundError, EOFError) as error:
            raise CellError(f"cannot read {source}: {str(error).partition(':')[0]}; give a backup") from None
        yield Path(folder)


def _check_member(member: tarfile.TarInfo) -> None:
    """Raise TarError for a link, a device or a path out of the target: Python before 3.11.4 has no filter for that."""
    path = Path(member.name)
    if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
        raise tarfile.TarError(f"{member.name!r} does not belong in a backup")
