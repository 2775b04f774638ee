"""The logs of jobs."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from remuda.lib.append_only import Appended as Appended
from remuda.model.job import JobId


class Traces(Protocol):
    """Growing logs, one per job, addressed by exact byte offsets."""

    async def size(self, job_id: JobId) -> int: ...

    async def append(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """Add bytes at `start`. Bytes that are there already and equal are accepted; a gap or other bytes are not."""
        ...

    def append_now(self, job_id: JobId, start: int, data: bytes) -> Appended | None:
        """The same where nothing has to be waited for; None, and nothing is done, where something has, and for bytes
        that are not taken."""
        ...

    async def compare(self, job_id: JobId, start: int, data: bytes) -> Appended:
        """What an append comes to when the job is over: only what is there already is taken, and nothing written."""
        ...

    def read(self, job_id: JobId, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes from `start` on, in pieces."""
        ...

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        """The job is over: make the bytes durable; size and checksum `crc32:xxxxxxxx`. Repeatable.

        A sealed trace does not grow: only what it has already is taken.
        """
        ...

    async def reopen(self, job_id: JobId) -> None:
        """The job goes on after all: let a sealed trace grow again. One that is just being sealed stays so."""
        ...

    async def list_unarchived(self) -> Sequence[JobId]:
        """The jobs whose traces are not in the archive (yet)."""
        ...

    async def archive(self, job_id: JobId) -> None:
        """Move a sealed trace to where it stays; it is not opened again. Repeatable; one that is not sealed stays."""
        ...

    async def remove(self, job_id: JobId) -> None: ...
