"""The interface to traces, the logs of jobs, which grow until they are sealed (final and durable), then archived."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from remuda.lib.append_only import Appended as Appended
from remuda.model.job import JobId


class Traces(Protocol):
    async def size(self, job_id: JobId) -> int: ...

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """Add bytes at the offset `start`. They are refused (`taken` is False) if bytes before are missing, if stored
        bytes differ, or if the trace is sealed (complete) and does not have them."""
        ...

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        """Append without awaiting. None, with nothing stored, if that is impossible or refused; then call `append`."""
        ...

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """Compare bytes with a sealed trace, to answer a repeated append. `taken` is True if all are equal."""
        ...

    def read(self, job_id: JobId, start: int = 0) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a trace from `start` on, in pieces; none for a job without a trace. A caller that stops
        early must close the generator, which closes the file."""
        ...

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        """Make a trace durable and final, because its job has ended: from now on it accepts no more output. Returns its
        size and checksum (`crc32:xxxxxxxx`). Can be called again."""
        ...

    async def reopen(self, job_id: JobId) -> None:
        """Let a sealed trace accept output again, because the end of its job could not be stored or its runner must
        send the log again. No effect while it is being sealed, or once it is archived."""
        ...

    async def list_unarchived(self) -> Sequence[JobId]:
        """Return the jobs whose traces are not yet archived as blobs, whether the jobs run or have ended."""
        ...

    async def archive(self, job_id: JobId) -> None:
        """Move a sealed (complete) trace to the blob storage for good. Repeatable; no effect on other traces."""
        ...

    async def remove(self, job_id: JobId) -> None: ...
