"""Blobs in a local folder: artifacts and other large things that are written once.

A blob grows under a name of its own in `incoming/` and is renamed into its place when it is whole and on disk, so a
key either has all its bytes or none. What a dead process left in `incoming/` is removed at the next start.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, BinaryIO, ParamSpec, TypeVar, cast
from uuid import uuid4

from remuda.cell.errors import InvalidError, NotFoundError, StoreError, TooLargeError
from remuda.lib.files import sync_folder

P = ParamSpec("P")
T = TypeVar("T")

_PIECE_BYTES = 1024 * 1024
"""What is written or read at once, in a thread: large enough that the hop does not count."""

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*", re.ASCII)


class FolderBlobs:
    """Blobs in a folder; the key is the path below `kept/`."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / "kept"
        self._incoming = folder / "incoming"
        shutil.rmtree(self._incoming, ignore_errors=True)
        for needed in (self._kept, self._incoming):
            needed.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        path = self._path(key)
        incoming = self._incoming / uuid4().hex
        digest = hashlib.sha256()
        size = 0
        file = await _threaded(lambda: incoming.open("xb", buffering=0))
        try:
            waiting = bytearray()
            async for piece in data:
                size += len(piece)
                if size > limit_bytes:
                    raise TooLargeError(f"more than the {limit_bytes} bytes that are allowed")
                waiting += piece
                if len(waiting) >= _PIECE_BYTES:
                    await _threaded(_write, file, digest, bytes(waiting))
                    waiting.clear()
            await _threaded(_write, file, digest, bytes(waiting))
            await _threaded(_keep, file, incoming, path)
        finally:
            file.close()
            incoming.unlink(missing_ok=True)
        return size, digest.hexdigest()

    async def size(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _store_error(error) from error

    async def read(self, key: str) -> AsyncIterator[bytes]:
        with self.opened(key) as file:
            while piece := await _threaded(file.read, _PIECE_BYTES):
                yield piece

    def opened(self, key: str) -> BinaryIO:
        try:
            # Not buffered: whoever reads asks for large pieces.
            return cast(BinaryIO, self._path(key).open("rb", buffering=0))
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(f"there is no blob {key}") from None
        except OSError as error:
            raise _store_error(error) from error

    async def remove(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if len(key) > 500 or not _KEY.fullmatch(key):
            raise InvalidError(
                f"{key!r} is no key for a blob: names of letters, digits, '.', '_' and '-' with '/' between"
            )
        return self._kept / key


async def _threaded(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do our own work on the disk; its errors are the store's, unlike those of whoever sends or reads."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except OSError as error:
        raise _store_error(error) from error


def _write(file: IO[bytes], digest: "hashlib._Hash", data: bytes) -> None:
    digest.update(data)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _keep(file: IO[bytes], incoming: Path, path: Path) -> None:
    os.fsync(file.fileno())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    incoming.rename(path)
    sync_folder(path.parent)


def _store_error(error: OSError) -> StoreError:
    return StoreError(f"the file cannot be kept: {error.strerror or error}; check the disk of the data folder")
