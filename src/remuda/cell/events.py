"""Tells those who watch how jobs, pipelines and runners stand, as soon as they change.

Level, not edge: that a job has changed is only a reason to read it; what is told is what the store says then. So two
changes in a row may be told as one, and nothing is told of a state that was never stored. What this process changes it
notes itself (`ChangedJobs`, filled by `remuda.cell.dispatch.job_changes`), what others change comes as hints; a hint
that is lost is made up for by looking at the open jobs that were told of before. Runners are looked at all together,
often: whether one is online is a matter of time, not of a change.

While nobody watches nothing is noted, read or kept. What has gone out is kept for a while after the last watcher has
left, for one that comes back. `remuda.cell.service` runs `watch`; `remuda.cell.http.remuda.events` is where watchers
arrive.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

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
"""What changes within so short a time is read together."""
RUNNERS_SECONDS = 2.0
LOOK_SECONDS = 15.0
"""How often jobs are looked at of which nothing was heard."""
LINGER_SECONDS = 60.0
"""How long events are kept for when the last watcher has left."""
MOST_CHANGED = 20_000
"""Jobs that wait to be read; more than that is told as a reset."""
MOST_WATCHERS = 1000
_REMEMBERED = 20_000
"""Subjects of which is known what was told last."""
_AT_ONCE = 500
_PAGE = 1000

_encode = msgspec.json.Encoder().encode
_log = logger("cell")


class ChangedJobs:
    """Jobs that have changed, each once, while somebody wants to know."""

    def __init__(self) -> None:
        self.wanted = False
        self.news = asyncio.Event()
        self._jobs: dict[JobId, None] = {}
        self._missed = False

    def note(self, *jobs: JobId) -> None:
        """These have changed. None at all: some may have changed of which nothing was heard."""
        if not self.wanted:
            return
        if jobs and len(self._jobs) + len(jobs) <= MOST_CHANGED:
            self._jobs.update(dict.fromkeys(jobs))
        else:
            self._missed = True
        self.news.set()

    def take(self) -> tuple[list[JobId], bool]:
        """Those that were noted, and whether there may be others."""
        self.news.clear()
        jobs, missed = list(self._jobs), self._missed
        self._jobs, self._missed = {}, False
        return jobs, missed


class Watcher:
    """Somebody who watches; `wake` is set when there may be something to tell."""

    def __init__(self, *, runners: bool) -> None:
        self.runners = runners
        self.wake = asyncio.Event()


class Events:
    """The events of one process of a cell."""

    def __init__(self, store: Store, changed: ChangedJobs, clock: Clock) -> None:
        self.buffer = Buffer(f"{to_base36(int(clock.now()))}{secrets.token_hex(4)}")
        self.stopped = False
        self._store = store
        self._changed = changed
        self._clock = clock
        self._watchers: set[Watcher] = set()
        self._came = asyncio.Event()
        self._since = 0.0
        """Since when changes are noted."""
        self._told: OrderedDict[tuple[EventKind, int], bytes] = OrderedDict()
        self._open: OrderedDict[JobId, None] = OrderedDict()
        """Jobs that were told of and are not over."""
        self._runners: dict[RunnerId, tuple[Runner, bytes]] | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    @contextmanager
    def subscribe(self, *, runners: bool) -> Iterator[Watcher]:
        """Somebody watches while the block runs, runners too or not."""
        watcher = Watcher(runners=runners)
        if not self._changed.wanted:
            self._changed.wanted = True
            self._since = self._clock.now()
        self._watchers.add(watcher)
        self._came.set()
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            self._came.set()

    def stop(self) -> None:
        """Send all watchers away; the cell stops."""
        self.stopped = True
        self._wake()

    async def watch(self, stop: asyncio.Event) -> None:
        """Until told to stop: read what has changed, and tell it."""
        now = self._clock.monotonic
        look_at = runners_at = left_at = now()
        while not stop.is_set():
            if not self._changed.wanted:
                await wait_for_any_event(self._clock, stop, self._came, within_seconds=3600, name="events")
                look_at = now() + LOOK_SECONDS
            self._came.clear()
            if self._watchers:
                left_at = now()
            elif now() - left_at >= LINGER_SECONDS:
                self._rest()
                continue
            try:
                await self._tell_changed()
                if now() >= look_at:
                    look_at = now() + LOOK_SECONDS
                    if self._open:
                        self._changed.note(*self._open)
                if now() >= runners_at:
                    runners_at = now() + RUNNERS_SECONDS
                    await self._look_at_runners()
            except StoreError as error:
                _log.warning("what has changed cannot be told now", error=str(error))
                self._miss()
                await wait_for_any_event(self._clock, stop, within_seconds=error.retry_after_seconds, name="events")
            pause = min(look_at, runners_at) - now()
            await wait_for_any_event(self._clock, stop, self._changed.news, within_seconds=pause, name="events")
            if self._changed.news.is_set():
                await self._clock.sleep(GATHER_SECONDS)

    def _rest(self) -> None:
        """Nobody watches: nothing is noted or kept from now on."""
        self._changed.wanted = False
        self._changed.take()
        self.buffer.forget()
        self._told.clear()
        self._open.clear()
        self._runners = None

    def _miss(self) -> None:
        """Something may have changed of which nothing is known: whoever watches must read again."""
        self.buffer.forget()
        self._wake()

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.wake.set()

    async def _tell_changed(self) -> None:
        changed, missed = self._changed.take()
        if missed:
            self._miss()
        for start in range(0, len(changed), _AT_ONCE):
            await self._tell_jobs(await self._store.jobs.load_jobs(changed[start : start + _AT_ONCE]))
            self._wake()

    async def _tell_jobs(self, jobs: Iterable[Job]) -> None:
        by_pipeline: dict[PipelineId, list[Job]] = {}
        for job in jobs:
            by_pipeline.setdefault(job.pipeline_id, []).append(job)
        for pipeline_id, changed in by_pipeline.items():
            is_known = (EventKind.PIPELINE, int(pipeline_id)) in self._told
            pipeline = await self._store.pipelines.load_pipeline(pipeline_id)
            if pipeline is not None and not is_known:
                self._tell_pipeline(pipeline)
            # Of a new pipeline another process tells only the jobs that wait for a runner; and whoever watches until a
            # pipeline is over should have heard of all its jobs by then.
            if pipeline is not None and (pipeline.status in OVER if is_known else pipeline.created_at >= self._since):
                family = await self._store.pipelines.load_family(pipeline_id)
                changed = list(family.jobs) if family else changed
            for job in changed:
                self._tell_job(job)
            if pipeline is not None and is_known:
                self._tell_pipeline(pipeline)

    def _tell_job(self, job: Job) -> None:
        if job.state in FINAL:
            self._open.pop(job.id, None)
        else:
            self._open[job.id] = None
            self._open.move_to_end(job.id)
            if len(self._open) > _REMEMBERED:
                self._open.popitem(last=False)
        self._tell(
            job.id,
            lambda body: Event(
                kind=EventKind.JOB, body=body, project_id=job.project_id, pipeline_id=job.pipeline_id, job_id=job.id
            ),
            EventKind.JOB,
            job_event(job),
        )

    def _tell_pipeline(self, pipeline: Pipeline) -> None:
        self._tell(
            pipeline.id,
            lambda body: Event(
                kind=EventKind.PIPELINE, body=body, project_id=pipeline.project_id, pipeline_id=pipeline.id
            ),
            EventKind.PIPELINE,
            pipeline_event(pipeline),
        )

    def _tell(self, number: int, event: Callable[[bytes], Event], kind: EventKind, value: object) -> None:
        """Put an event into the buffer, unless it says what the last one about the same thing said."""
        key, body = (kind, int(number)), _encode(value)
        if self._told.get(key) == body:
            return
        self._told[key] = body
        self._told.move_to_end(key)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        self.buffer.add(event(body))

    async def ready(self) -> None:
        """Return when every change from now on is told."""
        if self._runners is None:
            await self._look_at_runners()

    async def _look_at_runners(self) -> None:
        """Tell which runners are another than at the last look. The first look tells nothing."""
        if not any(watcher.runners for watcher in self._watchers):
            return
        contacts: dict[RunnerId, float] = {}
        for manager in await self._store.runners.list_all_managers():
            contacts[manager.runner_id] = max(manager.contacted_at, contacts.get(manager.runner_id, 0))
        found: dict[RunnerId, tuple[Runner, bytes]] = {}
        now = self._clock.now()
        for number in range(1, 1_000_000):
            runners, total = await self._store.runners.list_runners(Page(number=number, size=_PAGE))
            for runner in runners:
                status = status_of(runner.created_at, contacts.get(runner.id), now)
                found[runner.id] = (runner, _encode(runner_event(runner, status)))
            if number * _PAGE >= total:
                break
        before, self._runners = self._runners, found
        if before is None:
            return
        for runner_id in before.keys() - found.keys():
            runner = before[runner_id][0]
            self.buffer.add(Event(kind=EventKind.RUNNER, body=_encode(runner_event(runner, "removed")), runner=runner))
        for runner_id, (runner, body) in found.items():
            if runner_id not in before or before[runner_id][1] != body:
                self.buffer.add(Event(kind=EventKind.RUNNER, body=body, runner=runner))
        self._wake()


def job_event(job: Job) -> JobEvent:
    """A job as it is told."""
    return JobEvent(
        id=job.id,
        name=job.name,
        stage=job.stage,
        status=job.status(),
        project_id=job.project_id,
        pipeline_id=job.pipeline_id,
        ref=job.ref,
        tags=job.tags,
        allow_failure=job.allow_failure,
        retried=job.retried,
        runner_id=job.runner_id,
        created_at=job.created_at,
        started_at=job.start_time(),
        finished_at=job.finished_at,
        failure_reason=job.failure_reason,
        exit_code=job.exit_code,
        downstream_id=job.downstream_id,
    )


def pipeline_event(pipeline: Pipeline) -> PipelineEvent:
    """A pipeline as it is told."""
    return PipelineEvent(
        id=pipeline.id,
        iid=pipeline.iid,
        project_id=pipeline.project_id,
        status=pipeline.status,
        ref=pipeline.ref,
        sha=pipeline.sha,
        source=pipeline.source,
        name=pipeline.name,
        created_at=pipeline.created_at,
        started_at=pipeline.started_at,
        finished_at=pipeline.finished_at,
    )


def runner_event(runner: Runner, status: str) -> RunnerEvent:
    """A runner as it is told."""
    return RunnerEvent(
        id=runner.id,
        description=runner.description,
        runner_type=runner.type.value,
        status=status,
        paused=runner.paused,
        locked=runner.locked,
        protected=runner.protected_only,
        run_untagged=runner.run_untagged,
        tags=runner.tags,
    )
