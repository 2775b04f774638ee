"""A folder for the sockets of a program that we start, which is removed with us or, if we were killed, by the next one.

Decided here: where such folders are, and which of them nobody uses any more. Each is locked by its process for as long
as that lives, so whoever makes one removes those of this user that are not. Not decided here: what is put there, and
when the program has ended. Hosts of plugins use this. Blocks, for a moment.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from remuda.lib.safe_paths import remove_tree

PREFIX = "remuda-sockets-"
SHORT_FOLDER = "/tmp"
LONGEST_FOLDER_BYTES = 50
"""The whole path of a socket has 107 at most, on macOS 103; a program needs some of them."""


class SocketFolder:
    """A new one."""

    def __init__(self) -> None:
        room = tempfile.gettempdir()
        if len(os.fsencode(room)) > LONGEST_FOLDER_BYTES:
            room = SHORT_FOLDER
        _sweep(room)
        self.path, self._lock = _made(room)

    def close(self) -> None:
        """May be repeated."""
        if self._lock is not None:
            remove_tree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _made(room: str) -> tuple[str, int | None]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=room)
        with suppress(FileNotFoundError):  # somebody who swept was quicker than our lock: another one
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _is_held(lock) and os.path.exists(path):
                return path, lock
            os.close(lock)


def _is_held(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # where nothing can be locked, nothing is swept either
    return True


def _sweep(room: str) -> None:
    with suppress(OSError):
        for name in os.listdir(room):
            if name.startswith(PREFIX):
                with suppress(OSError), _unused(Path(room, name)) as path:
                    remove_tree(path, ignore_errors=True)


@contextmanager
def _unused(path: Path) -> Iterator[Path]:
    """A folder of this user that no process holds, held by us. OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(path)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        os.close(folder)
