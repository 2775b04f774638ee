"""Traces (job logs) in memory, for unit tests. The same contract tests check this class and the one that uses files."""

import zlib
from collections.abc import AsyncGenerator, Sequence

from remuda.cell.traces.port import Appended
from remuda.model.job import JobId


class MemoryTraces:
    def __init__(self) -> None:
        self._bytes: dict[JobId, bytearray] = {}
        self._sealed: set[JobId] = set()
        self._archived: set[JobId] = set()

    async def size(self, job_id: JobId) -> int:
        return len(self._bytes.get(job_id, b""))

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        return self._append(job_id, start, data)

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        appended = self._append(job_id, start, data)
        return appended if appended.taken else None

    def _append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        trace = self._bytes.setdefault(job_id, bytearray())
        common = trace[start : start + len(data)]
        rest = data[len(common) :]
        taken = 0 <= start <= len(trace) and data[: len(common)] == common and not (rest and job_id in self._sealed)
        if taken:
            trace += rest
        return Appended(taken=taken, size=len(trace))

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        trace = self._bytes.get(job_id, b"")
        taken = 0 <= start <= len(trace) and trace[start : start + len(data)] == data
        return Appended(taken=taken, size=len(trace))

    async def read(self, job_id: JobId, start: int = 0) -> AsyncGenerator[bytes, None]:
        rest = bytes(self._bytes.get(job_id, b"")[start:])
        if rest:
            yield rest

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        self._sealed.add(job_id)
        trace = self._bytes.get(job_id, b"")
        return len(trace), f"crc32:{zlib.crc32(trace):08x}"

    async def reopen(self, job_id: JobId) -> None:
        self._sealed.discard(job_id)

    async def list_unarchived(self) -> Sequence[JobId]:
        return [job_id for job_id in self._bytes if job_id not in self._archived]

    async def archive(self, job_id: JobId) -> None:
        if job_id in self._sealed:
            self._archived.add(job_id)

    async def remove(self, job_id: JobId) -> None:
        self._bytes.pop(job_id, None)
        self._sealed.discard(job_id)
        self._archived.discard(job_id)
