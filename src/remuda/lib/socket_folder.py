"""Temporary folders for the sockets of plugin processes.

A process locks its folder while it lives. Creating a `SocketFolder` removes the user's unlocked folders, which killed
processes left."""

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
"""A socket path has at most 107 bytes, 103 on macOS; the program needs some of them."""


class SocketFolder:
    def __init__(self) -> None:
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > LONGEST_FOLDER_BYTES:
            parent = SHORT_FOLDER
        _sweep(parent)
        self.path, self._lock = _create(parent)

    def close(self) -> None:
        if self._lock is not None:
            remove_tree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _create(parent: str) -> tuple[str, int | None]:
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        with suppress(FileNotFoundError):  # another process removed it before it was locked: try again
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _try_lock(lock) and os.path.exists(path):
                return path, lock
            os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: folders are not removed there either
    return True


def _sweep(parent: str) -> None:
    with suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(PREFIX):
                with suppress(OSError), _lock_unused(Path(parent, name)) as path:
                    remove_tree(path, ignore_errors=True)


@contextmanager
def _lock_unused(path: Path) -> Iterator[Path]:
    """Lock a folder to remove it, during the block. OSError if it is in use (locked) or another user owns it."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(path)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        os.close(folder)
