"""Files that must be right after a crash: written whole or not at all, and folders that one process uses at a time.

A process whose files all end with it says so (`forgo_disk`), and then nothing waits for the disk: other processes see
what is written anyway, and after a loss of power nobody looks for it.

The locks are the kernel's: one is dropped when its process dies, however it dies. Whoever finds a folder in use learns
which process has it. What stands in the files, and what is said about a folder in use, is the callers' decision.
"""

import asyncio
import fcntl
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

_LOOK_SECONDS = 0.02
"""How often to look whether a lock is free: the kernel would tell only a thread that waits for it."""


class _Disk:
    """What `forgo_disk` said."""

    is_waited_for = True


def forgo_disk() -> None:
    """From now on nothing that this process writes needs to be there after a loss of power."""
    _Disk.is_waited_for = False


def is_disk_waited_for() -> bool:
    """Whether what must be right after a crash has to be on the disk; asked by those who have others sync for them."""
    return _Disk.is_waited_for


class InUseError(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by process {holder}")
        self.holder = holder
        """Its number, or `unknown`."""


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Put a file in place for this user only; `durable`: on the disk before this returns."""
    # The name of the file may be as long as any may be.
    aside = path.with_name(f".{path.name[:100]}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        with open(_made(aside), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                sync(file.fileno())
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def make_private(path: Path) -> None:
    """See to it that a file is there and only this user may read it, from the moment it is made; for those that are
    opened by a library, which would make them for everybody. One of somebody else's is an OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
            os.fchmod(file, 0o600)
    finally:
        os.close(file)


def open_private(path: Path) -> TextIO:
    """Open a text file for appending that only this user may read, from the moment it is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8")


def _made(path: Path) -> int:
    """A new file of this name; what stands there is removed, since it may be a link that leads elsewhere."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, 0o600)


def sync(file: int) -> None:
    """Have an open file's contents on the disk."""
    if _Disk.is_waited_for:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: a file that was renamed into it is there after a loss of power, too."""
    if not _Disk.is_waited_for:
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Use:
    """A lock file that this process holds, first of all alone if that is possible."""

    def __init__(self, file: int) -> None:
        self._file = file

    def share(self) -> None:
        """From now on others that share may hold it, too; InUseError when somebody who does not was quicker."""
        if not _is_taken(self._file, fcntl.LOCK_SH):
            raise _in_use(self._file)


@contextmanager
def sole_use(lock: Path) -> Iterator[None]:
    """Hold a lock file, which names this process meanwhile; InUseError when another process holds it."""
    with _opened(lock) as file:
        if not _is_taken(file, fcntl.LOCK_EX):
            raise _in_use(file)
        _sign(file)
        yield


@contextmanager
def shared_use(lock: Path, *, patience_seconds: float = 10.0) -> Iterator[Use]:
    """Hold a lock file alone until `share` is called, or with others that have called it; InUseError when somebody
    goes on holding it alone."""
    until = time.monotonic() + patience_seconds
    with _opened(lock) as file:
        while not _is_taken(file, fcntl.LOCK_EX):
            if _is_taken(file, fcntl.LOCK_SH):
                break
            if time.monotonic() >= until:
                raise _in_use(file)
            time.sleep(_LOOK_SECONDS)
        else:
            _sign(file)
        yield Use(file)


@asynccontextmanager
async def in_turn(lock: Path) -> AsyncIterator[None]:
    """Hold a lock file when it is this process's turn. In a folder that does not exist there is nothing to wait for."""
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield
        return
    try:
        while not _is_taken(file, fcntl.LOCK_EX):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(file)


@contextmanager
def _opened(lock: Path) -> Iterator[int]:
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _is_taken(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)


def _in_use(file: int) -> InUseError:
    holder = os.pread(file, 32, 0).decode(errors="replace").strip()
    return InUseError(holder if holder.isdigit() else "unknown")
