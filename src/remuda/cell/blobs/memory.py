"""Blobs in memory, for unit tests. The same contract tests check this class and the other blob storages."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from remuda.cell.blobs.port import StoredBlob
from remuda.cell.errors import NotFoundError, TooLargeError
from remuda.lib.clock import Clock, SystemClock


class MemoryBlobs:
    def __init__(self, clock: Clock | None = None) -> None:
        self._blobs: dict[str, bytes] = {}
        self._times: dict[str, float] = {}
        self._clock = clock or SystemClock()

    async def close(self) -> None:
        return

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        whole = bytearray()
        async for piece in data:
            whole += piece
            if len(whole) > limit_bytes:
                raise TooLargeError(f"the limit is {limit_bytes} bytes")
        self._blobs[key] = bytes(whole)
        self._times[key] = self._clock.now()
        return len(whole), hashlib.sha256(whole).hexdigest()

    async def take(self, key: str, file: Path) -> None:
        self._blobs[key] = file.read_bytes()
        self._times[key] = self._clock.now()
        file.unlink()

    async def size(self, key: str) -> int | None:
        blob = self._blobs.get(key)
        return None if blob is None else len(blob)

    async def read(self, key: str, start: int = 0) -> AsyncGenerator[bytes, None]:
        if key not in self._blobs:
            raise NotFoundError(f"there is no blob {key}")
        if rest := self._blobs[key][start:]:
            yield rest

    def open(self, key: str) -> BinaryIO:
        if key not in self._blobs:
            raise NotFoundError(f"there is no blob {key}")
        return BytesIO(self._blobs[key])

    async def remove(self, key: str) -> None:
        self._blobs.pop(key, None)

    async def list_below(self, prefix: str) -> AsyncIterator[StoredBlob]:
        for key in list(self._blobs):
            if key.startswith(f"{prefix}/"):
                yield StoredBlob(key=key, modified_at=self._times[key])
