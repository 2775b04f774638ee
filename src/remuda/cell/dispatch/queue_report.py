"""Describes the queue by what jobs require of a runner (tags, protection, pools): how many wait and run, which jobs are
next, which runners fit, and why others do not. For `GET /api/remuda/v1/queue`.

The jobs are those in the memory of this process. One pass over them is reused for a multiple of the time that it takes,
so the cost is bounded with any number of jobs and callers; for each listed key, only its first jobs are read."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import msgspec

from remuda.cell.core.waiting.demand import Need, need_of
from remuda.cell.core.waiting.no_runner_reasons import (
    NoRunnerReason,
    RunnerSupply,
    RunnerView,
    availability,
    explain_no_runner,
)
from remuda.cell.dispatch.explanations import Explanations
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.store.ports import Store
from remuda.cell.values import Job
from remuda.lib.clock import Clock
from remuda.model.job import JobId, ProjectId, RunnerId
from remuda.model.runner import CapabilityKey, Pool, fits
from remuda.queue import LineSummary, Waiting, summarize_lines
from remuda.queue.pickups import Estimate

LOOKED_AT = 500
"""How many of the first jobs of a key are looked at to find those that the caller may see."""
RUNNERS = 20
"""How many fitting runners of a key are listed: the free ones first."""
_REUSE_FACTOR = 10
_LONG_SECONDS = 0.02
"""What takes less time is not reused, so that a small cell always shows the present state."""
_BY_AVAILABILITY = ("free", "busy", "blocked", "paused", "silent", "offline", "never_seen")


class QueueKey(msgspec.Struct, frozen=True, kw_only=True):
    """What some jobs require, with those that wait, by project, and those that runners have."""

    need: Need
    lines: tuple[LineSummary, ...] = ()
    running: tuple[Job, ...] = ()

    @property
    def waiting(self) -> int:
        return sum(line.waiting for line in self.lines)

    @property
    def oldest_since(self) -> float | None:
        return min((line.oldest_since for line in self.lines), default=None)

    def of_organization(self, organization_id: int) -> "QueueKey":
        """The same key with the jobs of one organization only."""
        return msgspec.structs.replace(
            self,
            lines=tuple(line for line in self.lines if line.key.organization_id == organization_id),
            running=tuple(job for job in self.running if job.organization_id == organization_id),
        )

    def has_job_of(self, projects: Collection[ProjectId]) -> bool:
        return any(line.key.project_id in projects for line in self.lines) or any(
            job.project_id in projects for job in self.running
        )


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    job: Job
    """As it was when it was enqueued."""
    priority: int
    level: int
    """Its priority, plus the increase for the time that it has waited."""
    since: float
    position: int | None
    """Its position among the jobs of its key, from 1; None: behind those that were looked at."""


class FittingRunner(msgspec.Struct, frozen=True, kw_only=True):
    view: RunnerView
    availability: str
    jobs: tuple[Job, ...]


class QueueKeyDetails(msgspec.Struct, frozen=True, kw_only=True):
    jobs: tuple[QueuedJob, ...]
    runners: tuple[FittingRunner, ...]
    reason: NoRunnerReason | None
    """Why its jobs wait, and what to do; None if the caller may see none of its jobs."""


_Explanation = tuple[list[tuple[str, RunnerView]], NoRunnerReason]
"""The first runners that fit, each with its availability, and why jobs wait."""


class QueueReport:
    def __init__(self, store: Store, memory: DispatchMemory, explanations: Explanations, clock: Clock) -> None:
        self._store = store
        self._memory = memory
        self._explanations = explanations
        self._clock = clock
        self._keys: tuple[float, float, Sequence[QueueKey]] = (-math.inf, 0.0, ())
        """When the jobs were grouped, how many seconds that took, and the result."""
        self._explained: dict[CapabilityKey, _Explanation] = {}
        self._explained_at = -math.inf
        self._explaining_took = 0.0

    async def list_keys(self) -> Sequence[QueueKey]:
        """Return the keys of all jobs that wait or run, those with the most waiting jobs first."""
        now = self._clock.monotonic()
        grouped_at, took, keys = self._keys
        if not 0 <= now - grouped_at < _REUSE_FACTOR * took:
            runners = await self._explanations.load_runners(reuse_seconds=0)
            waiting, running = self._memory.waiting_jobs.entries(), list(self._memory.assigned_jobs.values())
            keys = await asyncio.to_thread(_group, waiting, running, runners)
            self._keys = now, self._clock.monotonic() - now, keys
        return keys

    async def describe(
        self, keys: Sequence[QueueKey], *, projects: Collection[ProjectId] | None, jobs: int
    ) -> list[QueueKeyDetails]:
        """Return the first `jobs` waiting jobs of each key that are of one of the projects (None: all), the runners
        that fit, and why others do not."""
        chosen = [self._choose(key, projects, jobs) for key in keys]
        loaded = await self._load([job_id for positions in chosen for job_id in positions])
        runners = await self._explanations.load_runners(reuse_seconds=0)
        by_runner: dict[RunnerId, list[Job]] = {}
        for job in self._memory.assigned_jobs.values():
            if job.runner_id is not None:
                by_runner.setdefault(job.runner_id, []).append(job)
        queued = [self._list_jobs(positions, loaded) for positions in chosen]
        samples: list[Job | None] = []
        for key, jobs_of_key in zip(keys, queued, strict=True):
            running = (job for job in key.running if projects is None or job.project_id in projects)
            samples.append(jobs_of_key[0].job if jobs_of_key else next(running, None))
        explanations = await self._explain(keys, samples, runners)
        return [
            QueueKeyDetails(
                jobs=jobs_of_key,
                runners=tuple(
                    FittingRunner(view=view, availability=word, jobs=tuple(by_runner.get(view.runner.id, ())))
                    for word, view in (explanation[0] if explanation else ())
                ),
                reason=explanation[1] if explanation else None,
            )
            for jobs_of_key, explanation in zip(queued, explanations, strict=True)
        ]

    def _choose(self, key: QueueKey, projects: Collection[ProjectId] | None, many: int) -> Mapping[JobId, int | None]:
        """Return the ids of the first jobs of a key that are of one of the projects, each with its position."""
        queue = self._memory.waiting_jobs
        chosen: dict[JobId, int | None] = {}
        for position, job_id in enumerate(islice(queue.upcoming([line.key for line in key.lines]), LOOKED_AT), 1):
            waiting = queue.how(job_id)
            if len(chosen) == many:
                return chosen
            if waiting is not None and (projects is None or waiting.key.project_id in projects):
                chosen[job_id] = position
        if projects is not None and len(chosen) < many:
            own = [line.key for line in key.lines if line.key.project_id in projects]
            for job_id in islice(queue.upcoming(own), many):
                chosen.setdefault(job_id, None)
        return dict(islice(chosen.items(), many))

    async def _load(self, job_ids: Sequence[JobId]) -> Mapping[JobId, Job]:
        recent = self._memory.recent_jobs
        missing = [job_id for job_id in job_ids if job_id not in recent]
        rows = await self._store.jobs.load_jobs(missing) if missing else ()
        return {job_id: recent[job_id] for job_id in job_ids if job_id in recent} | {job.id: job for job in rows}

    def _list_jobs(self, positions: Mapping[JobId, int | None], loaded: Mapping[JobId, Job]) -> tuple[QueuedJob, ...]:
        """Return the jobs that still wait."""
        queue = self._memory.waiting_jobs
        return tuple(
            QueuedJob(
                job=loaded[job_id],
                priority=waiting.priority,
                level=waiting.level,
                since=waiting.since,
                position=position,
            )
            for job_id, position in positions.items()
            if job_id in loaded and (waiting := queue.how(job_id)) is not None
        )

    async def _explain(
        self, keys: Sequence[QueueKey], samples: Sequence[Job | None], runners: Sequence[RunnerView]
    ) -> list[_Explanation | None]:
        """Return for each key the runners that fit and why its jobs wait, by a job of it (None: no explanation). With
        many runners an explanation is reused for a multiple of the time that it takes."""
        now = self._clock.now()
        if not 0 <= now - self._explained_at < _REUSE_FACTOR * self._explaining_took:
            self._explained.clear()
            self._explained_at = now
        # The estimate is for a job that is added now.
        missing = {
            sample.key(): (
                sample,
                self._memory.pick_ups.estimate(sample.key(), key.waiting, now, since=key.oldest_since),
            )
            for key, sample in zip(keys, samples, strict=True)
            if sample is not None and sample.key() not in self._explained
        }
        began = self._clock.monotonic()
        if missing:
            self._explained |= await asyncio.to_thread(_explain_all, missing, runners, now)
        took = self._clock.monotonic() - began
        self._explaining_took = took if took > _LONG_SECONDS else 0.0
        return [None if sample is None else self._explained.get(sample.key()) for sample in samples]


def _group(waiting: Sequence[Waiting], assigned: Sequence[Job], runners: Sequence[RunnerView]) -> Sequence[QueueKey]:
    served = frozenset[Pool]().union(*(view.runner.pools() for view in runners))
    lines: dict[Need, list[LineSummary]] = {}
    running: dict[Need, list[Job]] = {}
    for line in summarize_lines(waiting):
        lines.setdefault(need_of(line.key, served), []).append(line)
    for job in assigned:
        running.setdefault(need_of(job.key(), served), []).append(job)
    keys = [
        QueueKey(need=need, lines=tuple(lines.get(need, ())), running=tuple(running.get(need, ())))
        for need in sorted({*lines, *running})
    ]
    return sorted(keys, key=lambda key: (-key.waiting, -len(key.running)))


def _explain_all(
    samples: Mapping[CapabilityKey, tuple[Job, Estimate | None]], runners: Sequence[RunnerView], now: float
) -> dict[CapabilityKey, _Explanation]:
    offers = [view.runner.fingerprint() for view in runners]
    explanations = {}
    for need, (sample, estimate) in samples.items():
        # Runners that serve only other organizations are not disclosed, not even their number.
        serving = tuple(view for view in runners if view.runner.may_serve(sample.organization_id))
        is_fitting = {offer: fits(offer, need) for offer in set(offers)}
        fitting = [
            (availability(view, now), view)
            for view, offer in zip(runners, offers, strict=True)
            if is_fitting[offer] and view.runner.may_serve(sample.organization_id)
        ]
        fitting.sort(key=lambda pair: (_BY_AVAILABILITY.index(pair[0]), pair[1].runner.id))
        reason = explain_no_runner(sample, RunnerSupply(runners=serving, estimate=estimate), now)
        explanations[need] = fitting[:RUNNERS], reason
    return explanations
