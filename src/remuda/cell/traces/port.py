"""The interface to traces, the logs of jobs: growing byte sequences that are sealed (made durable) when the job is
over, and later archived (moved to the blob storage)."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from remuda.lib.append_only import Appended as Appended
from remuda.model.job import JobId


class Traces(Protocol):
    async def size(self, job_id: JobId) -> int: ...

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """Add bytes at the offset `start`. Refused (`taken` is False) if there is a gap, stored bytes differ, or the
        trace is sealed and the bytes are new."""
        ...

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        """Append without waiting. Returns None, and does nothing, if it must wait or the bytes are refused."""
        ...

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """Compare bytes with a sealed trace, to answer a repeated append. `taken` is True if all are equal."""
        ...

    def read(self, job_id: JobId, start: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a trace from `start` on, in pieces; none for a job without a trace. A caller that stops
        early must close the generator, which closes the file."""
        ...

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        """Make the trace durable when the job is over; it does not grow any more. Returns its size and checksum
        (`crc32:xxxxxxxx`). Repeatable."""
        ...

    async def reopen(self, job_id: JobId) -> None:
        """Let a sealed trace grow again, because the job goes on. No effect while it is being sealed, or once it is
        archived."""
        ...

    async def list_unarchived(self) -> Sequence[JobId]:
        """The jobs whose traces, live or sealed, are not archived yet."""
        ...

    async def archive(self, job_id: JobId) -> None:
        """Move a sealed trace to the blob storage for good. Repeatable; no effect on one that is not sealed."""
        ...

    async def remove(self, job_id: JobId) -> None: ...
