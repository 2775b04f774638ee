"""Traces and blobs in memory: the public twins of the file adapters, for unit tests."""

import hashlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from remuda.cell.errors import NotFoundError, TooLargeError
from remuda.cell.store.ports import Appended, StoredBlob
from remuda.lib.clock import Clock, SystemClock
from remuda.model.job import JobId


class MemoryTraces:
    """Logs that are gone with their process."""

    def __init__(self) -> None:
        self._bytes: dict[JobId, bytearray] = {}
        self._sealed: set[JobId] = set()
        self._archived: set[JobId] = set()

    async def size(self, job_id: JobId) -> int:
        return len(self._bytes.get(job_id, b""))

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        return self._appended(job_id, start, data)

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        appended = self._appended(job_id, start, data)
        return appended if appended.taken else None

    def _appended(self, job_id: JobId, start: int, data: bytes) -> Appended:
        trace = self._bytes.setdefault(job_id, bytearray())
        there = trace[start : start + len(data)]
        rest = data[len(there) :]
        taken = 0 <= start <= len(trace) and data[: len(there)] == there and not (rest and job_id in self._sealed)
        if taken:
            trace += rest
        return Appended(taken=taken, size=len(trace))

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        trace = self._bytes.get(job_id, b"")
        taken = 0 <= start <= len(trace) and trace[start : start + len(data)] == data
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

    async def unarchived(self) -> Sequence[JobId]:
        return [job_id for job_id in self._bytes if job_id not in self._archived]

    async def archive(self, job_id: JobId) -> None:
        if job_id in self._sealed:
            self._archived.add(job_id)

    async def remove(self, job_id: JobId) -> None:
        self._bytes.pop(job_id, None)
        self._sealed.discard(job_id)
        self._archived.discard(job_id)


class MemoryBlobs:
    """Blobs that are gone with their process."""

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

    def opened(self, key: str) -> BinaryIO:
        if key not in self._blobs:
            raise NotFoundError(f"there is no blob {key}")
        return BytesIO(self._blobs[key])

    async def remove(self, key: str) -> None:
        self._blobs.pop(key, None)

    async def listed(self, prefix: str) -> AsyncIterator[StoredBlob]:
        for key in list(self._blobs):
            if key.startswith(f"{prefix}/"):
                yield StoredBlob(key=key, modified_at=self._times[key])
