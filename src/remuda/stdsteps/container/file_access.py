"""Makes the job's files accessible to all users, because the user in an image is often not the owner of the files. The
parent folders keep other users of the machine out. Files that this process cannot change (those of other owners, unless
it is root) are skipped. A job may run in the folder meanwhile and create links, so no link is followed."""

import contextlib
import os
import stat

from remuda.lib.safe_paths import MovedError, close_after, open_folder, walk

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def share(folder: str) -> None:
    """Let all users read and write every file and folder of a tree, and execute what is executable."""
    with contextlib.suppress(FileNotFoundError, MovedError), close_after(open_folder(folder)) as top:
        for place, names, _ in walk(top):
            _open_to_all(place)
            for name in names:
                with contextlib.suppress(OSError):
                    if _share_mode(mode := os.stat(name, dir_fd=place, follow_symlinks=False).st_mode) != mode:
                        _open_to_all_by_name(name, place)


def _open_to_all_by_name(name: str, place: int) -> None:
    file = os.open(name, _OPENING, dir_fd=place)
    try:
        _open_to_all(file)
    finally:
        os.close(file)


def _open_to_all(file: int) -> None:
    mode = os.fstat(file).st_mode
    if (shared := _share_mode(mode)) != mode:
        with contextlib.suppress(PermissionError):
            os.fchmod(file, stat.S_IMODE(shared))


def _share_mode(mode: int) -> int:
    """Return a mode with which all users may read and write, and execute if anybody can. Only modes of regular files
    and folders change."""
    if stat.S_ISDIR(mode):
        return mode | 0o777
    return mode | 0o666 | (0o111 if mode & 0o111 else 0) if stat.S_ISREG(mode) else mode
