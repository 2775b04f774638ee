"""What is told to those who watch: numbered events in a buffer of bounded length, and which of them somebody asked for.

Pure. Decided here: how an event looks on the wire (server-sent events), where somebody goes on who has seen a part, and
when that is impossible. `remuda.cell.events` puts events in, `remuda.cell.http.remuda.events` takes them out.

Invariant: whoever reads on from a place gets every event behind it, or hears that some are gone (None).
"""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from remuda.cell.values import Runner
from remuda.model.job import JobId, PipelineId, ProjectId

CAPACITY = 4096
"""Events that can still be read. Whoever is further behind reads the state itself again."""


class EventKind(StrEnum):
    """What an event is about."""

    JOB = "job"
    PIPELINE = "pipeline"
    RUNNER = "runner"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """How something stands since it last changed."""

    kind: EventKind
    body: bytes
    """JSON."""
    project_id: ProjectId | None = None
    pipeline_id: PipelineId | None = None
    job_id: JobId | None = None
    runner: Runner | None = None
    """Of an event about a runner: who may see it depends on it."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events somebody asked for. A project, pipeline or job leaves out what does not belong to it."""

    kinds: frozenset[EventKind] = frozenset(EventKind)
    project_id: ProjectId | None = None
    pipeline_id: PipelineId | None = None
    job_id: JobId | None = None

    @property
    def runners(self) -> bool:
        """Whether any event about a runner is wanted."""
        is_narrow = self.project_id is not None or self.pipeline_id is not None or self.job_id is not None
        return EventKind.RUNNER in self.kinds and not is_narrow

    def covers(self, event: Event) -> bool:
        return (
            event.kind in self.kinds
            and self.project_id in (None, event.project_id)
            and self.pipeline_id in (None, event.pipeline_id)
            and self.job_id in (None, event.job_id)
        )


class Buffer(msgspec.Struct):
    """The newest events, in order. `name` tells one buffer's numbers from another's."""

    name: str
    capacity: int = CAPACITY
    last: int = 0
    """The number of the newest event, also when it is not kept any more."""
    _events: deque[Event] = msgspec.field(default_factory=deque)

    def add(self, event: Event) -> None:
        self._events.append(event)
        self.last += 1
        if len(self._events) > self.capacity:
            self._events.popleft()

    def forget(self) -> None:
        """Nothing that came before can be read any more, though the place is known."""
        self._events.clear()
        self.last += 1

    def after(self, number: int, *, at_most: int) -> Sequence[Event] | None:
        """Those behind a number, the first so many; None when some are gone, or the number is none of these."""
        behind = self.last - number
        if not 0 <= behind <= len(self._events):
            return None
        start = len(self._events) - behind
        return [self._events[at] for at in range(start, min(start + at_most, len(self._events)))]

    def mark(self, number: int) -> str:
        """A place, as it goes out."""
        return f"{self.name}-{number}"

    def place(self, mark: str) -> int | None:
        """A place as it comes back; None when it is of another buffer, or of none."""
        name, _, number = mark.rpartition("-")
        is_ours = name == self.name and number.isascii() and number.isdigit() and len(number) <= 18
        return int(number) if is_ours else None

    def text(self, number: int, event: Event) -> bytes:
        """An event on the wire."""
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.mark(number).encode(), event.kind.encode(), event.body)

    def heartbeat(self, number: int) -> bytes:
        """A sign of life. It tells the place, too, so that somebody who is shown few events does not fall behind."""
        return b": alive\nid: %b\n\n" % self.mark(number).encode()

    def reset(self, reason: str) -> bytes:
        """The last word to somebody who has missed something: read again; events go on from here."""
        return b'id: %b\nevent: reset\ndata: {"reason":"%b"}\n\n' % (self.mark(self.last).encode(), reason.encode())
