"""Blobs in a local folder. A blob is written to a file in `incoming/`, synced, and then renamed to its key, so a blob
is never stored in part.

When the cell starts, it removes files in `incoming/` that are older than a day, which a dead process left; younger ones
are perhaps in use. `obstore` also has a local store, but that does not sync, and cannot take over a file without
copying it."""

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
"""The size of a write or read in a thread: large enough that the switch of threads does not count."""

_LEFT_SECONDS = 24 * 3600


class FolderBlobs:
    """Blobs as files in a folder: the key of a blob is the path of its file below the subfolder `kept/`."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept"
        self._incoming = folder / "incoming"
        for part in (self._kept, self._incoming):
            part.mkdir(parents=True, exist_ok=True, mode=0o700)
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
            buffer = bytearray()
            async for piece in data:
                size += len(piece)
                if size > limit_bytes:
                    raise TooLargeError(f"larger than the limit of {limit_bytes} bytes")
                buffer += piece
                if len(buffer) >= _PIECE_BYTES:
                    await _in_thread(_write, file, digest, bytes(buffer))
                    buffer.clear()
            await _in_thread(_write, file, digest, bytes(buffer))
            await _in_thread(_keep, file, incoming, path, self._kept)
        finally:
            file.close()
            incoming.unlink(missing_ok=True)
        return size, digest.hexdigest()

    async def take(self, key: str, file: Path) -> None:
        path = self._path(key)
        try:
            # Without a sync: the file is on disk, and after a power cut it has its old or its new name.
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
            # Not buffered: callers read large pieces.
            return cast(BinaryIO, self._path(key).open("rb", buffering=0))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"there is no blob {key}") from None
        except OSError as error:
            raise _store_error(error) from error

    async def remove(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _store_error(error) from error
        if path.parent != self._kept:
            # Otherwise each job would leave an empty folder. A writer that needs it creates it again.
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    async def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        folders = os.walk(self._path(prefix))
        while level := await _in_thread(next, folders, None):
            folder, _, names = level
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    yield StoredBlob(key=str(path.relative_to(self._kept)), modified_at=path.stat().st_mtime)

    def _path(self, key: str) -> Path:
        return self._kept / check_key(key)


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work`, which accesses the disk, in a thread. An OSError is raised as StoreError."""
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


def _keep(file: IO[bytes], incoming: Path, path: Path, root: Path) -> None:
    sync(file.fileno())
    _move(incoming, path)
    for folder in path.parents:
        sync_folder(folder)  # each may be a new entry in the one above
        if folder == root:
            break


def _move(file: Path, path: Path) -> None:
    """Rename a file. Creates the target folder, again if another call removes it meanwhile because it is empty."""
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
    return StoreError(f"cannot read or write a blob: {error.strerror or error}; check the disk of the data folder")
