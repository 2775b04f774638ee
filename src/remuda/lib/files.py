"""Files that must be right after a crash: written whole or not at all, and folders that one process uses at a time.

The lock is the kernel's: it is dropped when its process dies, however it dies. Whoever finds it held learns which
process has it. What stands in the files, and what is said about a folder in use, is the callers' decision.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class InUseError(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by process {holder}")
        self.holder = holder
        """Its number, or `unknown`."""


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Put a file in place for this user only; `durable`: on the disk before this returns."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a file that was renamed into it is there after a loss of power, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def sole_use(lock: Path) -> Iterator[None]:
    """Hold a lock file, which names this process meanwhile; InUseError when another process holds it."""
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            raise InUseError(holder if holder.isdigit() else "unknown") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
