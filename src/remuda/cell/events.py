"""Publishes changes of jobs, pipelines and runners as events, to which API clients subscribe.

The code that changes a job reports only its id; the event contains what the store has when the job is read afterwards.
So two changes in a row may become one event, and every state in an event was stored. Reports from other processes may
be lost, so unfinished jobs for which an event was published are read again from time to time. While a subscriber wants
events of runners, all runners are read every few seconds, because their online status depends on time. Changes of jobs
are collected and read while there are subscribers, and for `LINGER_SECONDS` after the last one has left."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import msgspec

from remuda.cell.core.event_buffer import Buffer, Event, EventKind
from remuda.cell.errors import StoreError
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Page, Pipeline, Runner
from remuda.cell.values.people import status_of
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import FINAL, JobId, PipelineId, RunnerId
from remuda.model.progress import OVER
from remuda.telemetry.logs import logger
from remuda.wire.routable_token import to_base36
from remuda.wire.user_api import JobEvent, PipelineEvent, RunnerEvent

GATHER_SECONDS = 0.02
"""Changes within this time are read together."""
RUNNERS_SECONDS = 2.0
LOOK_SECONDS = 15.0
"""Interval at which unfinished jobs are read again, even if no change was reported."""
LINGER_SECONDS = 60.0
"""How long events are kept after the last subscriber has left."""
MOST_CHANGED = 20_000
"""Maximum number of changed jobs that wait to be read. More of them cause a reset."""
MOST_WATCHERS = 1000
_REMEMBERED = 20_000
"""Number of jobs and pipelines whose last event is remembered."""
_AT_ONCE = 500
_PAGE = 1000

EventT = TypeVar("EventT", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode
_log = logger("cell")


class Notified(Protocol):
    """What wants to know the ids of changed jobs. Without ids, any job may have changed."""

    def note(self, *jobs: JobId) -> None: ...


class ChangedJobs:
    """Collects the ids of changed jobs, for events about them, while there are event subscribers."""

    def __init__(self) -> None:
        self.enabled = False
        self.news = asyncio.Event()
        self._jobs: dict[JobId, None] = {}
        self._missed = False
        self.others: list[Notified] = []
        """What else gets the same ids."""

    def note(self, *jobs: JobId) -> None:
        """Add the ids of changed jobs. Without ids, or with too many, record that any job may have changed."""
        for other in self.others:
            other.note(*jobs)
        if not self.enabled:
            return
        if jobs and len(self._jobs) + len(jobs) <= MOST_CHANGED:
            self._jobs.update(dict.fromkeys(jobs))
        else:
            self._missed = True
        self.news.set()

    def take(self) -> tuple[list[JobId], bool]:
        """Return and clear the collected ids. The second value is True if other jobs may have changed, too."""
        self.news.clear()
        jobs, missed = list(self._jobs), self._missed
        self._jobs, self._missed = {}, False
        return jobs, missed


class Watcher:
    """An event subscriber. `wake` is set when there may be new events; `runners`: it wants events of runners, too."""

    def __init__(self, *, runners: bool) -> None:
        self.runners = runners
        self.wake = asyncio.Event()


class Events:
    """Reads changes from the store and adds events to `buffer`, which subscribers read. One per process of a cell."""

    def __init__(self, store: Store, changed: ChangedJobs, clock: Clock) -> None:
        self.buffer = Buffer(f"{to_base36(int(clock.now()))}{secrets.token_hex(4)}")
        self.stopped = False
        self._store = store
        self._changed = changed
        self._clock = clock
        self._watchers: set[Watcher] = set()
        self._subscribed = asyncio.Event()
        self._since = 0.0
        """When the collection of changes was enabled."""
        self._published: OrderedDict[tuple[EventKind, int], bytes] = OrderedDict()
        self._open: OrderedDict[JobId, None] = OrderedDict()
        """Unfinished jobs that had an event."""
        self._runners: dict[RunnerId, tuple[Runner, bytes]] | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    @contextmanager
    def subscribe(self, *, runners: bool) -> Iterator[Watcher]:
        """Register an event subscriber until the `with` block ends. `runners`: it wants events of runners, too."""
        watcher = Watcher(runners=runners)
        if not self._changed.enabled:
            self._changed.enabled = True
            self._since = self._clock.now()
        self._watchers.add(watcher)
        self._subscribed.set()
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            self._subscribed.set()

    def stop(self) -> None:
        """Tell all subscribers that the cell stops, so that their streams end."""
        self.stopped = True
        self._wake()

    async def watch(self, stop: asyncio.Event) -> None:
        """Read changes from the store and publish events until `stop` is set."""
        now = self._clock.monotonic
        look_at = runners_at = left_at = now()
        while not stop.is_set():
            if not self._changed.enabled:
                await wait_for_any_event(self._clock, stop, self._subscribed, within_seconds=3600, name="events")
                look_at = now() + LOOK_SECONDS
            self._subscribed.clear()
            if self._watchers:
                left_at = now()
            elif now() - left_at >= LINGER_SECONDS:
                self._clear()
                continue
            try:
                await self._publish_changed()
                if now() >= look_at:
                    look_at = now() + LOOK_SECONDS
                    await self._publish_stored(list(self._open))
                if now() >= runners_at:
                    runners_at = now() + RUNNERS_SECONDS
                    await self._publish_runners()
            except StoreError as error:
                _log.warning("cannot read changed jobs and runners; told event subscribers to reload", error=str(error))
                self._reset()
                await wait_for_any_event(self._clock, stop, within_seconds=error.retry_after_seconds, name="events")
            pause = min(look_at, runners_at) - now()
            await wait_for_any_event(self._clock, stop, self._changed.news, within_seconds=pause, name="events")
            if self._changed.news.is_set():
                await self._clock.sleep(GATHER_SECONDS)

    def _clear(self) -> None:
        """Stop collecting changes and drop events and states, as there have been no subscribers for a while."""
        self._changed.enabled = False
        self._changed.take()
        self.buffer.forget()
        self._published.clear()
        self._open.clear()
        self._runners = None

    def _reset(self) -> None:
        """Drop the events, as changes may be missing: subscribers get a `reset` event and read all state again."""
        self.buffer.forget()
        self._wake()

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.wake.set()

    async def _publish_changed(self) -> None:
        changed, missed = self._changed.take()
        if missed:
            self._reset()
        await self._publish_stored(changed)

    async def _publish_stored(self, jobs: list[JobId]) -> None:
        for start in range(0, len(jobs), _AT_ONCE):
            await self._publish_jobs(await self._store.jobs.load_jobs(jobs[start : start + _AT_ONCE]))
            self._wake()

    async def _publish_jobs(self, jobs: Iterable[Job]) -> None:
        by_pipeline: dict[PipelineId, list[Job]] = {}
        for job in jobs:
            by_pipeline.setdefault(job.pipeline_id, []).append(job)
        for pipeline_id, changed in by_pipeline.items():
            is_known = (EventKind.PIPELINE, int(pipeline_id)) in self._published
            pipeline = await self._store.pipelines.load_pipeline(pipeline_id)
            if pipeline is not None and not is_known:
                self._publish_pipeline(pipeline)
            # Only the pending jobs of a new pipeline are reported as changed, and a subscriber that waits for the end
            # of a pipeline needs an event for each of its jobs before the end.
            if pipeline is not None and (pipeline.status in OVER if is_known else pipeline.created_at >= self._since):
                family = await self._store.pipelines.load_family(pipeline_id)
                changed = list(family.jobs) if family else changed
            for job in changed:
                self._publish_job(job)
            if pipeline is not None and is_known:
                self._publish_pipeline(pipeline)

    def _publish_job(self, job: Job) -> None:
        if job.state in FINAL:
            self._open.pop(job.id, None)
        else:
            self._open[job.id] = None
            self._open.move_to_end(job.id)
            if len(self._open) > _REMEMBERED:
                self._open.popitem(last=False)
        body = _encode(_copy(JobEvent, job, status=job.status(), started_at=job.start_time()))
        self._publish(
            job.id,
            Event(kind=EventKind.JOB, body=body, project_id=job.project_id, pipeline_id=job.pipeline_id, job_id=job.id),
        )

    def _publish_pipeline(self, pipeline: Pipeline) -> None:
        body = _encode(_copy(PipelineEvent, pipeline))
        self._publish(
            pipeline.id,
            Event(kind=EventKind.PIPELINE, body=body, project_id=pipeline.project_id, pipeline_id=pipeline.id),
        )

    def _publish(self, number: int, event: Event) -> None:
        """Add an event to the buffer, unless it equals the last event of the job or pipeline with the id `number`."""
        key = (event.kind, int(number))
        if self._published.get(key) == event.body:
            return
        self._published[key] = event.body
        self._published.move_to_end(key)
        if len(self._published) > _REMEMBERED:
            self._published.popitem(last=False)
        self.buffer.add(event)

    async def ready(self) -> None:
        """Read the state of all runners if it is not known yet, so that later changes of runners cause events."""
        if self._runners is None:
            await self._publish_runners()

    async def _publish_runners(self) -> None:
        """Publish an event for each runner that was added, changed or removed since the last call; the first call only
        remembers the runners. Does nothing while no subscriber wants events of runners."""
        if not any(watcher.runners for watcher in self._watchers):
            return
        contacts: dict[RunnerId, float] = {}
        for manager in await self._store.runners.list_all_managers():
            contacts[manager.runner_id] = max(manager.contacted_at, contacts.get(manager.runner_id, 0))
        current: dict[RunnerId, tuple[Runner, bytes]] = {}
        now = self._clock.now()
        for number in range(1, 1_000_000):
            runners, total = await self._store.runners.list_runners(Page(number=number, size=_PAGE))
            for runner in runners:
                status = status_of(runner.created_at, contacts.get(runner.id), now)
                current[runner.id] = (runner, _runner_body(runner, status))
            if number * _PAGE >= total:
                break
        before, self._runners = self._runners, current
        if before is None:
            return
        for runner_id in before.keys() - current.keys():
            runner = before[runner_id][0]
            self.buffer.add(Event(kind=EventKind.RUNNER, body=_runner_body(runner, "removed"), runner=runner))
        for runner_id, (runner, body) in current.items():
            if runner_id not in before or before[runner_id][1] != body:
                self.buffer.add(Event(kind=EventKind.RUNNER, body=body, runner=runner))
        self._wake()


def _runner_body(runner: Runner, status: str) -> bytes:
    event = _copy(RunnerEvent, runner, status=status, runner_type=runner.type.value, protected=runner.protected_only)
    return _encode(event)


def _copy(kind: type[EventT], value: object, **others: object) -> EventT:
    """Create an event of type `kind` from `others`; its remaining fields are copied from `value`, by name."""
    names = (name for name in kind.__struct_fields__ if name not in others)
    return kind(**{name: getattr(value, name) for name in names}, **others)
