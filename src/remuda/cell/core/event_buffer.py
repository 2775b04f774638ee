"""Keeps the newest events about jobs, pipelines and runners, formats them as server-sent events, and filters them for
subscribers. Invariant: `Buffer.after` returns every event after a number, or None if some of them were dropped."""

from collections import deque
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from remuda.cell.values import Runner
from remuda.model.job import JobId, PipelineId, ProjectId

CAPACITY = 4096
"""Number of events that are kept. A subscriber that is further behind has to read the state again."""


class EventKind(StrEnum):
    JOB = "job"
    PIPELINE = "pipeline"
    RUNNER = "runner"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The new state of a job, pipeline or runner after a change, to be sent to subscribers."""

    kind: EventKind
    body: bytes
    """The state as JSON."""
    project_id: ProjectId | None = None
    pipeline_id: PipelineId | None = None
    job_id: JobId | None = None
    runner: Runner | None = None
    """Set for events about a runner, to decide who may see them."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events by kind, and by project, pipeline or job. A field that is None does not restrict the selection."""

    kinds: frozenset[EventKind] = frozenset(EventKind)
    project_id: ProjectId | None = None
    pipeline_id: PipelineId | None = None
    job_id: JobId | None = None

    @property
    def runners(self) -> bool:
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
    """Keeps the newest `capacity` events in order. `name` is part of event ids; ids of other buffers are refused."""

    name: str
    capacity: int = CAPACITY
    last: int = 0
    """Number of the newest event, even if that is not kept any more."""
    _events: deque[Event] = msgspec.field(default_factory=deque)

    def add(self, event: Event) -> None:
        self._events.append(event)
        self.last += 1
        if len(self._events) > self.capacity:
            self._events.popleft()

    def forget(self) -> None:
        """Drop all events. A subscriber that continues from an earlier number gets a `reset` event."""
        self._events.clear()
        self.last += 1

    def after(self, number: int, *, at_most: int) -> Sequence[Event] | None:
        """Return up to `at_most` events after `number`; None if some were dropped, or `number` is above the newest."""
        behind = self.last - number
        if not 0 <= behind <= len(self._events):
            return None
        start = len(self._events) - behind
        return [self._events[index] for index in range(start, min(start + at_most, len(self._events)))]

    def mark(self, number: int) -> str:
        """Return the id that subscribers see for the event with this number."""
        return f"{self.name}-{number}"

    def place(self, mark: str) -> int | None:
        """Return the number of the event whose id a subscriber sent back; None if this buffer did not make the id."""
        name, _, number = mark.rpartition("-")
        is_ours = name == self.name and number.isascii() and number.isdigit() and len(number) <= 18
        return int(number) if is_ours else None

    def text(self, number: int, event: Event) -> bytes:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.mark(number).encode(), event.kind.encode(), event.body)

    def heartbeat(self, number: int) -> bytes:
        """Return a keep-alive message with the id of the event `number`, after which a subscriber can continue."""
        return b": alive\nid: %b\n\n" % self.mark(number).encode()

    def reset(self, reason: str) -> bytes:
        """Return the event that tells a subscriber to read the state again, because it missed events."""
        return b'id: %b\nevent: reset\ndata: {"reason":"%b"}\n\n' % (self.mark(self.last).encode(), reason.encode())
