"""Lets users of a container read and write files of the machine: an image's own user is another one than their owner.

Who may come so far is decided by the folders above, which keep other users of the machine out. What this user does not
own stays as it is. A job may run in the folder meanwhile and put links in the way: nothing is ever followed.
"""

import contextlib
import os
import stat

from remuda.lib.safe_paths import MovedError, close_after, open_folder, walk

_OPENING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def share(folder: str) -> None:
    """Everybody may do in this tree what its owner may."""
    with contextlib.suppress(FileNotFoundError, MovedError), close_after(open_folder(folder)) as top:
        for place, names, _ in walk(top):
            _open_up(place)
            for name in names:
                with contextlib.suppress(OSError):
                    if _wanted(mode := os.stat(name, dir_fd=place, follow_symlinks=False).st_mode) != mode:
                        _open_up_file(name, place)


def _open_up_file(name: str, place: int) -> None:
    file = os.open(name, _OPENING, dir_fd=place)
    try:
        _open_up(file)
    finally:
        os.close(file)


def _open_up(file: int) -> None:
    mode = os.fstat(file).st_mode
    if (wanted := _wanted(mode)) != mode:
        with contextlib.suppress(PermissionError):
            os.fchmod(file, stat.S_IMODE(wanted))


def _wanted(mode: int) -> int:
    """The mode with the owner's rights for all; of nothing but files and folders."""
    if stat.S_ISDIR(mode):
        return mode | 0o777
    return mode | 0o666 | (0o111 if mode & 0o111 else 0) if stat.S_ISREG(mode) else mode
