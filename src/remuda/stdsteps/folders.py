"""Removing what is in the way, whatever it is."""

from pathlib import Path

from remuda.lib.files import remove_tree


def empty(folder: Path) -> None:
    """Remove everything in a folder, but not the folder: it is the job's working directory."""
    for path in folder.iterdir():
        remove(path)


def remove(path: Path) -> None:
    """Whatever it is; a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
