"""The packages of a job's steps in the job's own folder, where its containers and its sandbox show them read-only.

    packages/KEY/files            files of a package; KEY is its name in the agent's cache
    inserted-packages/KEY/files   the same for steps that a policy inserted, which the job's own steps do not see
    new-package-*/                a package that is being added

A container is created before the packages of its steps are fetched, and it must not show packages of other jobs. So it
shows this folder, and `share_package` adds each package to it before the first step of the package begins. Files are
hard links to those in the cache, so that a package costs no disk space; a file that cannot be linked is copied."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from remuda.lib.safe_paths import remove_tree
from remuda.steps.process.step_files import EXCHANGE, INSERTED_EXCHANGE
from remuda.steps.resolving.tree import protect

_FOLDERS = {EXCHANGE: "packages", INSERTED_EXCHANGE: "inserted-packages"}
_NEW = "new-package-"


def packages_folder(job: Path, exchange: str = EXCHANGE) -> Path:
    """Return the folder with the packages of those steps of a job that use this exchange folder."""
    return job / _FOLDERS[exchange]


def list_without_packages(job: Path) -> list[Path]:
    """Return the paths in a job's folder that do not contain packages, which are files of the agent's cache. Empty if
    the folder does not exist any more."""
    try:
        return [path for path in job.iterdir() if not _has_packages(path)]
    except FileNotFoundError:
        return []


def remove_packages(job: Path) -> None:
    """Remove the packages from a job's folder, also those that a killed agent was adding."""
    with suppress(FileNotFoundError):
        for path in filter(_has_packages, tuple(job.iterdir())):
            remove_tree(path, ignore_errors=True)


def _has_packages(path: Path) -> bool:
    return path.name in _FOLDERS.values() or path.name.startswith(_NEW)


def make_packages_folder(folder: Path) -> None:
    """Create a folder for packages, unless it exists. Other users may open packages by path, but may not list them."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)


def share_package(root: Path, folder: Path) -> Path:
    """Add the package with the files `root`, in the agent's cache, to a job's `folder`; return the path of its files
    there. A package appears whole, by a rename; one that is there is not changed. Raises OSError. Blocks."""
    target = folder / root.parent.name
    if not target.is_dir():
        make_packages_folder(folder)
        aside = Path(tempfile.mkdtemp(prefix=_NEW, dir=folder.parent))
        try:
            _link_tree(str(root), str(aside / "files"))
            protect(aside / "files")
            aside.chmod(0o755)
            try:
                aside.rename(target)
            except OSError:
                # If another step of the job was quicker, its copy is as good.
                if not target.is_dir():
                    raise
        finally:
            remove_tree(aside, ignore_errors=True)
    return target / root.name


def _link_tree(source: str, target: str) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{target}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), path)
            elif entry.is_dir():
                _link_tree(entry.path, path)
            else:
                _link(entry.path, path, entry.stat().st_mode)


def _link(source: str, target: str, mode: int) -> None:
    """Link a file, or copy it if that is impossible, or if not every user of an image could read or execute it."""
    wanted = 0o555 if mode & 0o111 else 0o444
    if mode & 0o577 == wanted:
        with suppress(OSError):  # another file system, too many links, or a file of another user
            os.link(source, target)
            return
    shutil.copyfile(source, target)
    os.chmod(target, wanted)
