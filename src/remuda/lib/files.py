"""Crash-safe files, written completely or not at all, and lock files.

Locks are the kernel's (flock), which releases them when the process dies."""

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
"""Seconds between two attempts to take a lock."""


class _Sync:
    is_enabled = True


def disable_sync() -> None:
    """Stop syncing the files of this process to disk, which is faster; a power loss may then lose them."""
    _Sync.is_enabled = False


def is_sync_enabled() -> bool:
    """True unless `disable_sync` was called. For callers that configure the sync of another library, such as SQLite."""
    return _Sync.is_enabled


class InUseError(Exception):
    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by process {holder}")
        self.holder = holder
        """The id of the process that has the lock, or `unknown`."""


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a file atomically by one that only this user may read. `durable`: sync it to disk before returning."""
    # The file name may already have the maximum length.
    aside = path.with_name(f".{path.name[:100]}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        with open(_create_new(aside), "wb") as file:
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


def write_all(file: int, data: bytes, offset: int | None = None) -> None:
    """Write all bytes to a descriptor, at its position or at `offset`; os.write alone may write only a part."""
    view = memoryview(data)
    while view:
        written = os.write(file, view) if offset is None else os.pwrite(file, view, offset)
        offset = None if offset is None else offset + written
        view = view[written:]


def read_whole_lines(path: Path) -> list[bytes]:
    """Read the lines of a file; [] if it does not exist. A last line cut by a crash is removed from the file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    return data[:whole].splitlines()


def make_private(path: Path) -> None:
    """Create a file, or change its mode, so that only this user has access. OSError if another user owns it."""
    with _open_private(path) as file:
        if stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
            os.fchmod(file, 0o600)


def open_private(path: Path) -> TextIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8")


def _create_new(path: Path) -> int:
    """Create a file and return its descriptor. An existing one is removed first, because it could be a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, 0o600)


def sync(file: int) -> None:
    if _Sync.is_enabled:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to disk, so that a renamed file survives a loss of power."""
    if not _Sync.is_enabled:
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, which change if it is replaced; None if missing or not accessible."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


class HeldLock:
    """A lock file that this process holds, alone or together with other processes."""

    def __init__(self, file: int) -> None:
        self._file = file

    def share(self) -> None:
        """Make an exclusive lock shared. Raises InUseError if another process took it exclusively meanwhile."""
        if not _try_lock(self._file, fcntl.LOCK_SH):
            raise _in_use(self._file)


@contextmanager
def hold_lock(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock during the block. Raises InUseError if another process has the lock."""
    with _open_private(lock) as file:
        if not _try_lock(file, fcntl.LOCK_EX):
            raise _in_use(file)
        _sign(file)
        yield


@contextmanager
def hold_shareable_lock(lock: Path, *, patience_seconds: float = 10.0) -> Iterator[HeldLock]:
    """Lock a file during the block: exclusively if it is free, else together with the processes that share it. Blocks
    up to `patience_seconds` while another process has it exclusively, then raises InUseError."""
    until = time.monotonic() + patience_seconds
    with _open_private(lock) as file:
        while not _try_lock(file, fcntl.LOCK_EX):
            if _try_lock(file, fcntl.LOCK_SH):
                break
            if time.monotonic() >= until:
                raise _in_use(file)
            time.sleep(_LOOK_SECONDS)
        else:
            _sign(file)
        yield HeldLock(file)


@contextmanager
def wait_for_file_lock(lock: Path) -> Iterator[None]:
    """Block until the lock is free, and hold it during the block."""
    with _open_private(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def wait_for_lock(lock: Path) -> AsyncIterator[None]:
    """Wait for the lock, and hold it during the block. If its folder does not exist, the block runs without lock."""
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield
        return
    try:
        while not _try_lock(file, fcntl.LOCK_EX):  # noqa: ASYNC110 - there is no event for a free lock
            await asyncio.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(file)


@contextmanager
def _open_private(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _try_lock(file: int, how: int) -> bool:
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
