"""Creates files below a folder that the user has named for results. The folder may be in a repository, whose links may
come from anybody. Invariant: nothing is written through a link below the folder, nor into a folder named `.git`."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from remuda.lib.exits import CommandError
from remuda.lib.safe_paths import FOLDER, close_after

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_writable_name(parts: Sequence[str]) -> bool:
    """True if no part is `.git`, where git would run programs that files configure."""
    return not any(part.lower() == ".git" for part in parts)


@contextmanager
def open_output_folder(base: Path, parts: Sequence[str]) -> Iterator[int]:
    """Yield the descriptor of a folder below `base`. Both are created if missing. Raises CommandError if a part of the
    path below `base` is a link or a file."""
    place = base
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                place = place / part
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
                inner = os.open(part, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
    except OSError as error:
        raise CommandError(_explain(place, "a folder", error)) from None
    with close_after(folder):
        yield folder


@contextmanager
def create_output_file(base: Path, parts: Sequence[str], mode: int = 0) -> Iterator[BinaryIO]:
    """Create a file below `base`, in place of an existing file, for the `with` block. `mode`: its permissions; 0: the
    usual ones. Raises CommandError if a part of the path is a link, or the file is something else than a file."""
    with open_output_folder(base, parts[:-1]) as folder:
        try:
            with suppress(FileNotFoundError):
                if stat.S_ISREG(os.stat(parts[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                    os.unlink(parts[-1], dir_fd=folder)
            descriptor = os.open(parts[-1], _NEW_FILE, 0o666, dir_fd=folder)
        except OSError as error:
            raise CommandError(_explain(base.joinpath(*parts), "a file", error)) from None
    with open(descriptor, "wb") as file:
        if mode:
            os.fchmod(descriptor, mode)
        yield file


def _explain(place: Path, kind: str, error: OSError) -> str:
    if place.is_symlink():
        return f"{place} is a link, and results are not written through links; remove it or name another folder"
    if os.path.lexists(place) and not (place.is_dir() and kind == "a folder"):
        return f"{place} exists and is not {kind}; remove it or name another folder"
    return f"cannot write {place}: {error.strerror}; name another folder"
