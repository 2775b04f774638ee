"""The port to stored shells and held jobs, and the values that pass through it.

Any process of a cell serves either side of a shell, so everything is stored. `remuda.cell.shells.files` implements the
port with files; `remuda.cell.shells.shells` is its only caller.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from remuda.lib.append_only import Appended

INPUT, OUTPUT = "input", "output"
"""The two streams of a shell: bytes to the command, and bytes from it."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A shell that a person asked for."""

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
    """A failed job that is on hold: its environment is kept until a time."""

    job_id: int
    runner_id: int
    system_id: str
    until: float
    release: bool = False
    """A user has released the job; its manager must remove the environment."""


class ShellStore(Protocol):
    """Shells, jobs on hold, and when each manager last asked. No call waits for a change."""

    def add(self, about: About, now: float) -> None: ...

    def about(self, shell: str) -> About | None: ...

    def ids(self) -> list[str]: ...

    def version(self) -> int:
        """A number that changes when a shell is added or removed, or a job's hold changes."""
        ...

    def size(self, shell: str, stream: str) -> int: ...

    def append(self, shell: str, stream: str, start: int, data: bytes, now: float) -> Appended:
        """Add bytes at an offset. Bytes that are stored already must be equal."""
        ...

    def read(self, shell: str, stream: str, start: int, count: int) -> bytes: ...

    def note_reader(self, shell: str, stream: str, offset: int, now: float) -> None:
        """The reader of a stream has called, and has everything before this byte."""
        ...

    def reader(self, shell: str, stream: str) -> tuple[int, float]:
        """The byte that the reader of a stream needs next, and when it last called."""
        ...

    def last_append_at(self, shell: str) -> float:
        """When the last byte was added to either stream."""
        ...

    def begin(self, shell: str) -> None:
        """A manager attends to the shell."""
        ...

    def is_begun(self, shell: str) -> bool: ...

    def end(self, shell: str, reason: str, now: float) -> None:
        """The shell is over; later reasons are ignored."""
        ...

    def end_of(self, shell: str) -> tuple[str, float] | None:
        """Why and when the shell ended; None while it is on."""
        ...

    def remove(self, shell: str) -> None: ...

    def put_hold(self, held: JobHold) -> None: ...

    def hold_of(self, job_id: int) -> JobHold | None: ...

    def holds(self) -> Iterator[JobHold]: ...

    def remove_hold(self, job_id: int) -> None: ...

    def note_manager(self, runner_id: int, system_id: str, now: float) -> None:
        """Record that a manager has asked for requests."""
        ...

    def manager_seen_at(self, runner_id: int, system_id: str) -> float:
        """When this manager last asked; 0 if never."""
        ...

    def forget_managers(self, before: float) -> None: ...
