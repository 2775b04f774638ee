"""Blobs in a local folder: artifacts and other large things that are written once.

A blob grows under a name of its own in `incoming/` and is renamed into its place when it is whole and on disk, so a
key either has all its bytes or none. What a dead process left in `incoming/` is removed by a start a day later: other
processes may be writing there. Written here and not through `obstore`, whose local store does not sync, and cannot
take over a file without copying it.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import IO, BinaryIO, ParamSpec, TypeVar, cast
from uuid import uuid4

from remuda.cell.blobs.port import StoredBlob, check_key
from remuda.cell.errors import NotFoundError, StoreError, TooLargeError
from remuda.lib.files import sync, sync_folder

P = ParamSpec("P")
T = TypeVar("T")

_PIECE_BYTES = 1024 * 1024
"""What is written or read at once, in a thread: large enough that the hop does not count."""

_LEFT_SECONDS = 24 * 3600


class FolderBlobs:
    """Blobs in a folder; the key is the path below `kept/`."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept"
        self._incoming = folder / "incoming"
        for needed in (self._kept, self._incoming):
            needed.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_leftovers(self._incoming)

    async def close(self) -> None:
        return

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        path = self._path(key)
        incoming = self._incoming / uuid4().hex
        digest = hashlib.sha256()
        size = 0
        file = await _in_thread(lambda: incoming.open("xb", buffering=0))
        try:
            waiting = bytearray()
            async for piece in data:
                size += len(piece)
                if size > limit_bytes:
                    raise TooLargeError(f"more than the {limit_bytes} bytes that are allowed")
                waiting += piece
                if len(waiting) >= _PIECE_BYTES:
                    await _in_thread(_write, file, digest, bytes(waiting))
                    waiting.clear()
            await _in_thread(_write, file, digest, bytes(waiting))
            await _in_thread(_keep, file, incoming, path, self._kept)
        finally:
            file.close()
            incoming.unlink(missing_ok=True)
        return size, digest.hexdigest()

    async def take(self, key: str, file: Path) -> None:
        path = self._path(key)
        try:
            # Not synced: the file is on disk, and a power cut leaves it here or there.
            await _in_thread(_move, file, path)
        except StoreError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EXDEV:
                raise
            with file.open("rb", buffering=0) as content:
                await self.put(key, _pieces(content), limit_bytes=file.stat().st_size)
            file.unlink(missing_ok=True)

    async def size(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _store_error(error) from error

    async def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        with self.open(key) as file:
            file.seek(start)
            async for piece in _pieces(file):
                yield piece

    def open(self, key: str) -> BinaryIO:
        try:
            # Not buffered: whoever reads asks for large pieces.
            return cast(BinaryIO, self._path(key).open("rb", buffering=0))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"there is no blob {key}") from None
        except OSError as error:
            raise _store_error(error) from error

    async def remove(self, key: str) -> None:
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            if path.parent != self._kept:
                # An empty folder a job would be left otherwise. Whoever needs it meanwhile makes it again.
                with contextlib.suppress(OSError):
                    path.parent.rmdir()

    async def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        folders = os.walk(self._path(prefix))
        while found := await _in_thread(next, folders, None):
            folder, _, names = found
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    yield StoredBlob(key=str(path.relative_to(self._kept)), modified_at=path.stat().st_mtime)

    def _path(self, key: str) -> Path:
        return self._kept / check_key(key)


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do our own work on the disk; its errors are the store's, unlike those of whoever sends or reads."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        raise _store_error(error) from error


async def _pieces(file: BinaryIO | IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await _in_thread(file.read, _PIECE_BYTES):
        yield piece


def _write(file: IO[bytes], digest: "hashlib._Hash", data: bytes) -> None:
    digest.update(data)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _keep(file: IO[bytes], incoming: Path, path: Path, kept: Path) -> None:
    sync(file.fileno())
    _move(incoming, path)
    for folder in path.parents:
        sync_folder(folder)  # each may be new, and is then an entry of the one above
        if folder == kept:
            break


def _move(file: Path, path: Path) -> None:
    """Rename into a folder that somebody may be about to remove because it is empty."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            file.rename(path)
            break
        except FileNotFoundError:
            if not file.exists():
                raise


def _remove_leftovers(incoming: Path) -> None:
    for path in incoming.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _LEFT_SECONDS:
                path.unlink()


def _store_error(error: OSError) -> StoreError:
    return StoreError(f"the file cannot be kept: {error.strerror or error}; check the disk of the data folder")
