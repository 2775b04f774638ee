"""The files of a backup: how they get into it and out of it while a cell goes on working.

Decided here: in which order the files of a cell are copied, so that whatever a row names is found though it wanders;
which archives there are; and that a folder counts only when all is in it. What a failure leaves is removed at once,
what a death left by whoever tries again. `remuda.cell.operations.backups` calls it and decides everything else.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.operations.data_folder import UNFINISHED
from remuda.lib.files import InUseError, sole_use

ARCHIVES = (".tar", ".tar.gz", ".tgz")
_NO_ARCHIVES = (".zip", ".gz", ".bz2", ".xz", ".zst", ".7z")


@contextmanager
def fill_folder(folder: Path, *, keeps: Iterable[str] = ()) -> Iterator[None]:
    """An empty folder, which is empty again or gone when this fails; `keeps` are names that may be there before."""
    kept = {"lost+found", *keeps}
    is_new = not folder.exists()
    if not (folder / UNFINISHED).exists():
        _check_empty(folder, kept)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with sole_use(folder / UNFINISHED):
            _clear(folder, kept | {UNFINISHED})
            try:
                yield
            except BaseException:
                _clear(folder, kept)
                if is_new:
                    with suppress(OSError):
                        folder.rmdir()
                raise
            (folder / UNFINISHED).unlink()
    except InUseError as error:
        raise DataFolderError(f"another process (process {error.holder}) writes to {folder}; wait for it") from None


def _check_empty(folder: Path, kept: Iterable[str]) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataFolderError(f"{folder} is a file; give an empty or a new folder")
    found = sorted(entry.name for entry in folder.iterdir() if entry.name not in kept)
    if found:
        raise DataFolderError(f"{folder} is not empty (it has {', '.join(found[:3])}); give an empty or a new folder")


def _clear(folder: Path, kept: Iterable[str]) -> None:
    for entry in folder.iterdir():
        if entry.name not in kept:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink(missing_ok=True)


def copy_traces(traces: Path, to: Path) -> None:
    """A trace wanders from the folder to the archive in it, and from there to the blobs, which are copied later."""
    copy(traces.glob("*.log"), traces, to)
    copy((traces / "archive").glob("*.log"), traces, to)
    for sealed in (to / "archive").glob("*.log"):
        (to / sealed.name).unlink(missing_ok=True)


def copy(files: Iterable[Path], root: Path, to: Path) -> None:
    """Copy files; one that is gone by now has moved on, or nobody names it any more."""
    for file in files:
        target = to / file.relative_to(root)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            shutil.copyfile(file, target)
        except FileNotFoundError:
            if not target.parent.exists():
                raise


def copy_repository(repo: Path, to: Path) -> None:
    """Refs first, then loose objects, then packs: whatever git moves meanwhile, it moves from an earlier to a later."""

    def files(wanted: Callable[[Path], bool]) -> Iterator[Path]:
        for file in list(repo.rglob("*")):
            if file.is_file() and not file.name.endswith(".lock") and wanted(file.relative_to(repo)):
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
    """Whether a path is to be an archive, by its name; CellError when it looks like one that is not written."""
    if path.name.endswith(ARCHIVES):
        return True
    if path.name.endswith(_NO_ARCHIVES):
        raise CellError(f"{path}: no such archive is written; give a name that ends in {', '.join(ARCHIVES)}")
    return False


def pack(folder: Path, to: Path) -> None:
    """Make an archive of a folder, whole or not at all; the folder's own is used meanwhile."""
    aside = folder.parent / "packed"
    with tarfile.open(aside, "w" if to.name.endswith(".tar") else "w:gz") as packed:
        packed.add(folder, arcname=".")
    aside.chmod(0o600)
    aside.rename(to)


@contextmanager
def unpack(source: Path, beside: Path) -> Iterator[Path]:
    """A backup as a folder; what is in an archive lies in the folder `beside` meanwhile, where there is room for it."""
    if not source.name.endswith(ARCHIVES):
        yield source
        return
    beside.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside, prefix=".remuda-restore-") as folder:
        try:
            with tarfile.open(source) as packed:
                packed.extractall(folder, filter="data")
        except (tarfile.TarError, FileNotFoundError, EOFError) as error:
            raise CellError(f"cannot read {source}: {str(error).partition(':')[0]}; give a backup") from None
        yield Path(folder)
