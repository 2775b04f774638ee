"""Explains why a job waits or how it ended, and counts how many jobs need which kind of runner. Jobs are taken from the
memory of this process, which the periodic check in `timeouts` updates from the store."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.resource_groups import order_upcoming
from remuda.cell.core.waiting import demand
from remuda.cell.core.waiting.no_runner_reasons import (
    RunnerSupply,
    RunnerView,
    explain_missing_runners,
    find_missing_runner,
    view_of,
)
from remuda.cell.core.waiting.why import Situation, explain
from remuda.cell.dispatch.job_changes import load_job
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports import Store
from remuda.cell.values import LEGACY, Job, Page, Project, Runner, RunnerManager
from remuda.cell.values.deployments import UNORDERED, UPCOMING
from remuda.lib.clock import Clock
from remuda.model.job import ASSIGNED, FINAL, OCCUPYING, JobId, JobState, RunnerId
from remuda.model.runner import CapabilityKey, fits
from remuda.wire.demand import KeyDemand
from remuda.wire.explanations import JobWhy

_ALL = Page(size=100_000)
DEMAND_SECONDS = 2.0
"""Minimum time for which a count is reused: there may be many jobs and many callers."""
_ManagedRunner = tuple[Runner, Sequence[RunnerManager]]
_WAITING = frozenset(JobState) - FINAL - ASSIGNED
_REUSE_FACTOR = 10
"""A count is reused for this multiple of the time it took."""


class DemandCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs need which kind of runner, counted at the time `at`; may be reused for `good_for_seconds`."""

    at: float
    keys: tuple[KeyDemand, ...]
    by_runner: Mapping[int, tuple[KeyDemand, ...]]
    good_for_seconds: float = DEMAND_SECONDS


class Explanations:
    def __init__(self, store: Store, memory: DispatchMemory, clock: Clock) -> None:
        self._store = store
        self._memory = memory
        self._clock = clock
        self._counted: DemandCount | None = None
        self._is_counting = False
        self._read_runners: tuple[float, float, Sequence[_ManagedRunner]] = (-math.inf, 0.0, ())
        """When all runners were read for lists, how many seconds that took, and the runners with their managers."""

    async def count_demand(self) -> DemandCount:
        """Count the jobs that wait for, have or will later need a runner, by what they require of it, and divide them
        among the runner managers that can take them. Counting is slow, so this may return an earlier count."""
        now, counted = self._clock.now(), self._counted
        if counted is not None and (self._is_counting or 0 <= now - counted.at < counted.good_for_seconds):
            return counted
        self._is_counting = True
        try:
            counted = await self._count(now)
            good_for = max(DEMAND_SECONDS, _REUSE_FACTOR * (self._clock.now() - now))
            self._counted = counted = replace(counted, good_for_seconds=good_for)
        finally:
            self._is_counting = False
        return counted

    async def _count(self, now: float) -> DemandCount:
        coming = await self._store.jobs.list_coming_jobs(demand.AHEAD, held_since=now - demand.HELD_SECONDS)
        runners, _ = await self._store.runners.list_runners(_ALL)
        managers = await self._store.runners.list_all_managers()
        ready, running = self._memory.waiting_jobs.count_by_key(), list(self._memory.assigned_jobs.values())

        def count() -> DemandCount:
            keys = demand.compute_demand(
                ready=ready,
                running=running,
                coming=demand.count_coming_jobs(coming),
                runners=runners,
                managers=managers,
                now=now,
            )
            return DemandCount(at=now, keys=keys, by_runner=demand.by_runner(keys))

        return await asyncio.to_thread(count)

    def jobs_by_manager(self, runner_id: RunnerId) -> Counter[str]:
        """Return how many jobs each manager of a runner has now, by the system id of the manager."""
        jobs = self._memory.assigned_jobs.values()
        return Counter(job.system_id or LEGACY for job in jobs if job.runner_id == runner_id)

    async def explain_job(self, job_id: int, *, sees: Callable[[Project], bool] = lambda _project: True) -> JobWhy:
        """Explain why a job waits or how it ended, without other projects that the caller may not see (`sees`)."""
        job = await load_job(self._store.jobs, job_id)
        family = await self._store.pipelines.load_family(job.pipeline_id)
        project = await self._store.projects.load_project(job.project_id)
        if family is None or project is None:
            raise NotFoundError(f"the pipeline or project of job {job_id} is missing in the store")
        downstream = await self._store.pipelines.find_downstream(job.id) if job.is_trigger else None
        target = await self._store.projects.load_project(downstream.project_id) if downstream else None
        upstream_id = family.pipeline.upstream_job_id
        upstream = await self._store.jobs.load_job(upstream_id) if upstream_id is not None else None
        source = await self._store.projects.load_project(upstream.project_id) if upstream else None
        holder, first, mode = None, None, ""
        if job.state is JobState.WAITING_FOR_RESOURCE:
            holder = await self._store.jobs.find_first_of_group(job.project_id, job.resource_group, OCCUPYING)
            group = await self._store.deployments.find_resource_group(job.project_id, job.resource_group)
            mode = group.process_mode if group else UNORDERED
            upcoming = await self._store.jobs.list_jobs_of_group(job.project_id, job.resource_group, UPCOMING)
            first = next(iter(order_upcoming(upcoming, mode)), None)
        return explain(
            Situation(
                job=job,
                family=family,
                project=project.path,
                now=self._clock.now(),
                runner=await self._store.runners.load_runner(job.runner_id) if job.runner_id is not None else None,
                holder=holder,
                first_of_group=first,
                process_mode=mode,
                downstream=downstream,
                downstream_project=target.path if target and sees(target) else "",
                upstream=upstream if source and sees(source) else None,
                explain_no_runner=await self._load_supply(job)
                if job.state is JobState.PENDING and not job.is_trigger
                else None,
                missing_runner=await self._find_missing_runner(job),
            )
        )

    async def _load_supply(self, job: Job) -> RunnerSupply:
        now, need = self._clock.now(), job.key()
        # Runners that serve only other organizations are not disclosed, not even their number.
        everywhere = await self._load_runners()
        runners = tuple(view for view in everywhere if view.runner.may_serve(job.organization_id))
        matching = [view.runner for view in runners if fits(view.runner.fingerprint(), need)]
        # If all matching runners are paused, estimate as if they were resumed.
        active = [runner for runner in matching if not runner.paused] or matching
        place = self._memory.waiting_jobs.place(job.id, {runner.fingerprint() for runner in active}, now)
        since = job.pending_at or job.created_at
        estimate = self._memory.pick_ups.estimate(need, place.ahead, now, since=since) if place else None
        return RunnerSupply(runners=runners, place=place, estimate=estimate)

    async def explain_missing_runners(self, groups: Sequence[Sequence[Job]]) -> list[list[str]]:
        """For each group of jobs of one project return sentences about those that no runner can take now."""
        if not any(groups):
            return [[] for _ in groups]
        now, everywhere = self._clock.now(), await self._load_runners()
        texts: list[list[str]] = []
        for jobs in groups:
            runners = [view for view in everywhere if jobs and view.runner.may_serve(jobs[0].organization_id)]
            texts.append(explain_missing_runners(jobs, runners, now))
        return texts

    async def find_missing_runners(self, jobs: Sequence[Job]) -> dict[JobId, str]:
        """Return for each of the jobs that no runner can take now the reason, for lists of jobs. Reading all runners is
        slow, so this may use an earlier reading."""
        waiting = [job for job in jobs if job.state in _WAITING and not job.is_trigger]
        if not waiting:
            return {}
        now, everywhere = self._clock.now(), await self.load_runners(reuse_seconds=DEMAND_SECONDS)
        reasons: dict[CapabilityKey, str] = {}
        for job in waiting:
            if (key := job.key()) not in reasons:
                runners = [view for view in everywhere if view.runner.may_serve(job.organization_id)]
                reasons[key] = find_missing_runner(job, runners, now)
        return {job.id: reason for job in waiting if (reason := reasons[job.key()])}

    async def _find_missing_runner(self, job: Job) -> str:
        if job.state is JobState.PENDING or job.state not in _WAITING or job.is_trigger:
            return ""
        runners = [view for view in await self._load_runners() if view.runner.may_serve(job.organization_id)]
        return find_missing_runner(job, runners, self._clock.now())

    async def load_runners(self, *, reuse_seconds: float) -> tuple[RunnerView, ...]:
        """Return all runners with the jobs that they have now. Runners and managers may be from an earlier reading that
        is younger than `reuse_seconds` or, if reading takes long, than `_REUSE_FACTOR` times that duration."""
        now = self._clock.now()
        read_at, took, rows = self._read_runners
        if not 0 <= now - read_at < max(reuse_seconds, _REUSE_FACTOR * took):
            rows = await self._read_all_runners()
            self._read_runners = now, self._clock.now() - now, rows
        return self._view(rows)

    async def _load_runners(self) -> tuple[RunnerView, ...]:
        return self._view(await self._read_all_runners())

    async def _read_all_runners(self) -> Sequence["_ManagedRunner"]:
        runners, _ = await self._store.runners.list_runners(_ALL)
        managers: dict[RunnerId, list[RunnerManager]] = {}
        for manager in await self._store.runners.list_all_managers():
            managers.setdefault(manager.runner_id, []).append(manager)
        return [(runner, managers.get(runner.id, ())) for runner in reversed(runners)]

    def _view(self, rows: Sequence["_ManagedRunner"]) -> tuple[RunnerView, ...]:
        jobs = Counter(job.runner_id for job in self._memory.assigned_jobs.values())
        now = self._clock.now()
        return tuple(view_of(runner, managers, jobs=jobs[runner.id], now=now) for runner, managers in rows)
