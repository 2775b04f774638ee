"""Traces (job logs) in files while jobs run, and in blobs when they are archived: the implementation of `Traces` that a
cell uses.

A file is removed only when its blob is complete, and the file is looked for first, so a trace is always found. Archived
traces are not compressed, because people read parts of them by byte offsets."""

import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from remuda.cell.blobs.port import Blobs
from remuda.cell.core.jobs.blob_keys import trace_key
from remuda.cell.errors import NotFoundError, StoreError
from remuda.cell.traces.files import FileTraces
from remuda.cell.traces.port import Appended
from remuda.model.job import JobId


class ArchivedTraces:
    def __init__(self, files: FileTraces, blobs: Blobs) -> None:
        self._files = files
        self._blobs = blobs

    async def size(self, job_id: JobId) -> int:
        here = self._files.size_here(job_id)
        return here if here is not None else await self._blobs.size(trace_key(job_id)) or 0

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        appended = await self._files.append(job_id, start, data)
        # Another process may have archived the trace meanwhile.
        return appended if appended.taken else await self.compare(job_id, start, data)

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        return self._files.append_now(job_id, start, data)

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        here = self._files.compare_here(job_id, start, data)
        if here is not None:
            return here
        size = await self.size(job_id)
        is_within = 0 <= start <= start + len(data) <= size
        return Appended(taken=is_within and await self._part(job_id, start, len(data)) == data, size=size)

    async def _part(self, job_id: JobId, start: int, length: int) -> bytes:
        part = bytearray()
        if length:
            async with aclosing(self.read(job_id, start)) as pieces:
                async for piece in pieces:
                    part += piece
                    if len(part) >= length:
                        break
        return bytes(part[:length])

    async def read(self, job_id: JobId, start: int = 0) -> AsyncGenerator[bytes, None]:
        here = self._files.read_here(job_id, start)
        try:
            async with aclosing(here or self._blobs.read(trace_key(job_id), start)) as pieces:
                async for piece in pieces:
                    yield piece
        except NotFoundError:
            return

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        if self._files.size_here(job_id) is None and await self._blobs.size(trace_key(job_id)) is not None:
            checksum = size = 0
            async for piece in self.read(job_id):
                checksum = zlib.crc32(piece, checksum)
                size += len(piece)
            return size, f"crc32:{checksum:08x}"
        return await self._files.seal(job_id)

    async def reopen(self, job_id: JobId) -> None:
        await self._files.reopen(job_id)

    async def list_unarchived(self) -> Sequence[JobId]:
        return await self._files.ids()

    async def archive(self, job_id: JobId) -> None:
        file = self._files.find_sealed_file(job_id)
        if file is None:
            return
        try:
            archived = await self._blobs.size(trace_key(job_id))
            if archived is not None and archived >= file.stat().st_size:
                # A crash left it in both places. The blob is whole, and a shorter file must not replace it.
                await self._files.remove(job_id)
            else:
                await self._blobs.take(trace_key(job_id), file)
        except (StoreError, OSError):
            if file.exists():
                raise
            # Another process that shares the folder has archived it.

    async def remove(self, job_id: JobId) -> None:
        await self._files.remove(job_id)
        await self._blobs.remove(trace_key(job_id))
