"""The interface to stored shells and jobs on hold (failed jobs kept for debugging). The calls of a shell's user and of
its runner manager may reach different processes of the cell, so all data is stored."""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from remuda.lib.append_only import Appended

INPUT, OUTPUT = "input", "output"
"""The two streams of a shell: bytes to the command, and bytes from it."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a shell: who opened it, in which job of which runner manager, with which command and terminal."""

    id: str
    job_id: int
    runner_id: int
    system_id: str
    user_id: int
    created_at: float
    command: tuple[str, ...] = ()
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""


class JobHold(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job that is on hold: its runner manager keeps its environment for debugging until a given time."""

    job_id: int
    runner_id: int
    system_id: str
    until: float
    release: bool = False
    """A user has released the job; its manager must remove the environment."""


class RunnerSession(msgspec.Struct, frozen=True, kw_only=True):
    """The session server of a gitlab-runner that requested a job. A terminal in the job is opened there, as long as
    that runner manager has the job."""

    job_id: int
    runner_id: int
    system_id: str
    url: str
    certificate: str = ""
    """PEM text of the certificate to trust; empty: the machine's authorities."""
    authorization: str = ""


class ShellStore(Protocol):
    """Stores shells, jobs on hold, and when each manager last polled. No method waits. `stream`: INPUT or OUTPUT."""

    def add(self, about: About, now: float) -> None: ...

    def about(self, shell: str) -> About | None: ...

    def ids(self) -> list[str]: ...

    def version(self) -> int:
        """Return a number that changes when a shell is added or removed, or a job is put on hold or released."""
        ...

    def size(self, shell: str, stream: str) -> int: ...

    def append(self, shell: str, stream: str, start: int, data: bytes, now: float) -> Appended:
        """Add bytes at offset `start`; refused (`taken` False) if earlier ones are missing or stored ones differ."""
        ...

    def read(self, shell: str, stream: str, start: int, count: int) -> bytes: ...

    def note_reader(self, shell: str, stream: str, offset: int, now: float) -> None:
        """Record that the reader of a stream polled at `now` and has received all bytes before `offset`."""
        ...

    def reader(self, shell: str, stream: str) -> tuple[int, float]:
        """Return the offset of the byte that the reader of a stream needs next, and when that reader last polled."""
        ...

    def last_append_at(self, shell: str) -> float:
        """Return when the last byte of input or output was added; if there is none, when the shell was opened."""
        ...

    def begin(self, shell: str) -> None:
        """Record that the runner manager of the job has picked up the shell."""
        ...

    def is_begun(self, shell: str) -> bool: ...

    def end(self, shell: str, reason: str, now: float) -> None:
        """Record that the shell has ended, and why. No effect if it has ended already."""
        ...

    def end_of(self, shell: str) -> tuple[str, float] | None:
        """Return why and when the shell ended; None if it has not ended. A shell that was removed counts as ended."""
        ...

    def remove(self, shell: str) -> None: ...

    def put_hold(self, hold: JobHold) -> None: ...

    def hold_of(self, job_id: int) -> JobHold | None: ...

    def holds(self) -> Iterator[JobHold]: ...

    def remove_hold(self, job_id: int) -> None: ...

    def put_session(self, session: RunnerSession, now: float) -> None: ...

    def session_of(self, job_id: int) -> RunnerSession | None: ...

    def forget_sessions(self, before: float) -> None:
        """Remove the sessions that were stored before this time."""
        ...

    def note_manager(self, runner_id: int, system_id: str, now: float) -> None:
        """Record that a runner manager polled for requests at `now`."""
        ...

    def manager_seen_at(self, runner_id: int, system_id: str) -> float:
        """Return when this runner manager last polled for requests; 0 if it never did."""
        ...

    def forget_managers(self, before: float) -> None: ...
