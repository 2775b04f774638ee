"""Traces and blobs in memory: the public twins of the file adapters, for unit tests."""

import hashlib
import zlib
from collections.abc import AsyncIterator
from io import BytesIO
from typing import BinaryIO

from remuda.cell.errors import NotFoundError, TooLargeError
from remuda.cell.ports import Appended
from remuda.model.job import JobId


class MemoryTraces:
    """Logs that are gone with their process."""

    def __init__(self) -> None:
        self._bytes: dict[JobId, bytearray] = {}
        self._sealed: set[JobId] = set()

    async def size(self, job_id: JobId) -> int:
        return len(self._bytes.get(job_id, b""))

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        trace = self._bytes.setdefault(job_id, bytearray())
        there = trace[start : start + len(data)]
        rest = data[len(there) :]
        taken = 0 <= start <= len(trace) and data[: len(there)] == there and not (rest and job_id in self._sealed)
        if taken:
            trace += rest
        return Appended(taken=taken, size=len(trace))

    async def read(self, job_id: JobId, start: int = 0) -> AsyncIterator[bytes]:
        rest = bytes(self._bytes.get(job_id, b"")[start:])
        if rest:
            yield rest

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        self._sealed.add(job_id)
        trace = self._bytes.get(job_id, b"")
        return len(trace), f"crc32:{zlib.crc32(trace):08x}"

    async def reopen(self, job_id: JobId) -> None:
        self._sealed.discard(job_id)

    async def remove(self, job_id: JobId) -> None:
        self._bytes.pop(job_id, None)
        self._sealed.discard(job_id)


class MemoryBlobs:
    """Blobs that are gone with their process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        whole = bytearray()
        async for piece in data:
            whole += piece
            if len(whole) > limit_bytes:
                raise TooLargeError(f"the limit is {limit_bytes} bytes")
        self._blobs[key] = bytes(whole)
        return len(whole), hashlib.sha256(whole).hexdigest()

    async def size(self, key: str) -> int | None:
        blob = self._blobs.get(key)
        return None if blob is None else len(blob)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        if key not in self._blobs:
            raise NotFoundError(f"there is no blob {key}")
        if self._blobs[key]:
            yield self._blobs[key]

    def opened(self, key: str) -> BinaryIO:
        if key not in self._blobs:
            raise NotFoundError(f"there is no blob {key}")
        return BytesIO(self._blobs[key])

    async def remove(self, key: str) -> None:
        self._blobs.pop(key, None)
