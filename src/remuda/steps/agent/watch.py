"""Streams the progress of jobs to clients: log bytes from an offset on, results from a number on, and the end.

A client follows many jobs over one stream (`Watcher`). Their events alternate, so that a job with much output does not
delay the others. The next event is sent when the stream has accepted the last: a slow client costs no memory."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from remuda.steps.agent.jobs import Jobs
from remuda.steps.engine.job_execution import Job
from remuda.wire.proto import agent_pb2 as pb

CHUNK_BYTES = 64 * 1024
BATCH_BYTES = 64 * 1024
"""Results are added to a batch until it has this size, so it may be larger by a part of the last result."""


class Subscription:
    def __init__(self, job: Job, *, log_offset: int, result_seq: int, batches: bool = False) -> None:
        self.job = job
        self._batches = batches
        self._log_offset = max(log_offset, 0)
        self._result_seq = max(result_seq, 1)
        self.is_over = False

    def next_event(self) -> pb.WatchEvent | None:
        event = pb.WatchEvent(id=self.job.id)
        if self.is_over:
            return None
        if self.job.closed:
            self.is_over = True
            event.unknown.SetInParent()
            return event
        results = self.job.journal.results
        if self._batches and self._result_seq < len(results):
            event.results.seq = self._result_seq
            room = BATCH_BYTES
            while self._result_seq <= len(results) and room > 0:
                event.results.json.append(results[self._result_seq - 1])
                room -= len(results[self._result_seq - 1])
                self._result_seq += 1
            return event
        if self._result_seq <= len(results):
            event.result.seq = self._result_seq
            event.result.json = results[self._result_seq - 1]
            self._result_seq += 1
            return event
        if self._log_offset < self.job.log.freed:
            self._log_offset, event.log.is_first = self.job.log.freed, True
        if data := self.job.log.read(self._log_offset, CHUNK_BYTES):
            event.log.offset = self._log_offset
            event.log.data = data
            self._log_offset += len(data)
            return event
        if self.job.end is None:
            return None
        self.is_over = True
        self.job.log.shut()
        end = self.job.end
        event.end.status = str(end.outcome.status)
        event.end.reason = end.outcome.reason
        event.end.exit_code = end.outcome.exit_code
        event.end.message = end.outcome.message
        event.end.log_bytes = end.log_bytes
        event.end.results = end.results
        event.end.log_checksum = end.log_checksum
        event.end.used.SetInParent()
        for name, value in end.used.items():
            setattr(event.end.used, name, value)
        event.end.held_seconds = self.job.hold.remaining_seconds
        return event


class Watcher:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._subscriptions: dict[str, tuple[Subscription, Callable[[], None]]] = {}
        self._ready: dict[str, None] = {}
        """Ids of jobs with something new, in the order of their turn."""
        self._unknown: deque[str] = deque()
        self._wake = asyncio.Event()

    def handle(self, request: pb.WatchRequest) -> None:
        """Subscribe to a job, unsubscribe, or confirm how much of a log the client has stored. A second subscribe to
        the same job continues at the positions in log and results that it names."""
        match request.WhichOneof("request"):
            case "subscribe":
                self._subscribe(request.subscribe)
            case "unsubscribe":
                self._drop(request.unsubscribe.id)
            case "confirm":
                job = self._jobs.find(request.confirm.id)
                if job is not None:
                    job.confirm(request.confirm.log_offset)
                    job.presence.attach(self)

    async def send_all(self, send: Callable[[pb.WatchEvent], Awaitable[None]]) -> None:
        while True:
            if self._unknown:
                await send(pb.WatchEvent(id=self._unknown.popleft(), unknown=pb.Unknown()))
                continue
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            job_id = next(iter(self._ready))
            del self._ready[job_id]
            subscription, _ = self._subscriptions[job_id]
            event = subscription.next_event()
            if event is not None:
                self._ready[job_id] = None
                if subscription.is_over:
                    self._drop(job_id)
                await send(event)

    def close(self) -> None:
        for job_id in tuple(self._subscriptions):
            self._drop(job_id)
        now = self._jobs.context.clock.monotonic()
        for job in self._jobs.all():
            job.presence.detach(self, now)

    def _subscribe(self, request: pb.Subscribe) -> None:
        self._drop(request.id)
        job = self._jobs.find(request.id)
        if job is None:
            self._unknown.append(request.id)
            self._wake.set()
            return

        def look() -> None:
            self._ready[request.id] = None
            self._wake.set()

        job.presence.attach(self)
        subscription = Subscription(
            job, log_offset=request.log_offset, result_seq=request.result_seq, batches=request.batches
        )
        self._subscriptions[request.id] = (subscription, look)
        job.listeners.add(look)
        look()

    def _drop(self, job_id: str) -> None:
        entry = self._subscriptions.pop(job_id, None)
        self._ready.pop(job_id, None)
        if entry is not None:
            subscription, look = entry
            subscription.job.listeners.discard(look)
