"""Wakes the calls that follow a job's log, so that they need not poll: when bytes are appended, or the job changes.

A module of its own, because both the handlers that append and those that read use it. Other processes of the cell are
not told: a call that waits there also compares the size of the log every REMOTE_SECONDS, which reads no store."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_event
from remuda.model.job import JobId

HOLD_SECONDS = 50.0
"""The longest wait. Many proxies end a call without an answer after 60 s."""
REMOTE_SECONDS = 1.0
MOST_WAITING = 2000
"""Calls that wait at once in this process; further ones are answered without waiting."""


class TraceReaders:
    """The calls that wait for more of a log. One per process of a cell."""

    def __init__(self) -> None:
        self._waiting: dict[JobId, set[asyncio.Event]] = {}
        self._count = 0
        self._stopped = False

    def note(self, *jobs: JobId) -> None:
        """Wake the calls that wait for these jobs: their logs grew or their states changed. Without ids: all calls."""
        if self._waiting:
            for job in jobs or tuple(self._waiting):
                for event in self._waiting.get(job, ()):
                    event.set()

    def stop(self) -> None:
        """Wake all calls, because the process stops. Later calls do not wait."""
        self._stopped = True
        self.note()

    async def wait(
        self,
        job: JobId,
        seconds: float,
        *,
        is_ready: Callable[[], Awaitable[bool]],
        size: Callable[[], Awaitable[int]] | None,
        clock: Clock,
    ) -> None:
        """Return as soon as `is_ready` is true, at the latest after `seconds`. It is called now, and after each change
        of the job or its log. `size`: returns the size of the log, to notice what another process appends; None if only
        one process serves the cell."""
        if self._stopped or self._count >= MOST_WAITING:
            return
        deadline = clock.monotonic() + min(seconds, HOLD_SECONDS)
        with self._register(job) as event:
            before = await size() if size else 0
            while not await is_ready():
                while not event.is_set():
                    left = deadline - clock.monotonic()
                    if left <= 0 or self._stopped:
                        return
                    await wait_for_event(event, within_seconds=min(left, REMOTE_SECONDS) if size else left)
                    if size and await size() != before:
                        return
                event.clear()

    @contextmanager
    def _register(self, job: JobId) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting.setdefault(job, set()).add(event)
        self._count += 1
        try:
            yield event
        finally:
            self._count -= 1
            events = self._waiting[job]
            events.discard(event)
            if not events:
                del self._waiting[job]
