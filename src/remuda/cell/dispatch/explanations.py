"""What the cell can say about itself: why a job stands where it stands, and how much work there is for whom.

Decided here is only what is looked up; `core.why` and `core.demand` make sense of it. The queue and what is with
runners are this process's own view, which every sweep brings in line with the store. The HTTP edge calls this.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from remuda.cell.core.waiting import demand
from remuda.cell.core.waiting.no_runner_reasons import Seen, Shortage
from remuda.cell.core.waiting.why import Situation, explain
from remuda.cell.dispatch.job_changes import Motion
from remuda.cell.errors import NotFoundError
from remuda.cell.values import LEGACY, Job, Page, Project
from remuda.model.job import OCCUPYING, JobState, RunnerId
from remuda.model.runner import fits
from remuda.wire.demand import KeyDemand
from remuda.wire.explanations import JobWhy

_ALL = Page(size=100_000)
DEMAND_SECONDS = 2.0
"""So long a count is good enough, at least: there may be many jobs, and many who ask."""
_TIMES = 10
"""So many times as long as it took to count."""


def _everything(_project: Project) -> bool:
    return True


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """All demand at one time."""

    at: float
    keys: tuple[KeyDemand, ...]
    by_runner: Mapping[int, tuple[KeyDemand, ...]]
    good_for_seconds: float = DEMAND_SECONDS


class Explanations(Motion):
    """The part of dispatch that explains."""

    _counted: Counted | None = None
    _is_counting = False

    async def demand(self) -> Counted:
        """How much work there is for which runners, with each manager's share, as it was a moment ago."""
        now, counted = self._clock.now(), self._counted
        if counted is not None and (self._is_counting or 0 <= now - counted.at < counted.good_for_seconds):
            return counted
        self._is_counting = True
        try:
            counted = await self._count(now)
            good_for = max(DEMAND_SECONDS, _TIMES * (self._clock.now() - now))
            self._counted = counted = replace(counted, good_for_seconds=good_for)
        finally:
            self._is_counting = False
        return counted

    async def _count(self, now: float) -> Counted:
        coming = await self._store.coming_jobs(demand.AHEAD, held_since=now - demand.HELD_SECONDS)
        runners, _ = await self._store.runners(_ALL)
        managers = await self._store.all_managers()
        ready, running = self._waiting.waiting(), list(self._with_runners.values())

        def count() -> Counted:
            keys = demand.demand(
                ready=ready,
                running=running,
                coming=demand.ahead(coming),
                runners=runners,
                managers=managers,
                now=now,
            )
            return Counted(at=now, keys=keys, by_runner=demand.by_runner(keys))

        return await asyncio.to_thread(count)

    def jobs_by_manager(self, runner_id: RunnerId) -> Counter[str]:
        """How many jobs the managers of a runner have, by their system ids."""
        return Counter(job.system_id or LEGACY for job in self._with_runners.values() if job.runner_id == runner_id)

    async def why(self, job_id: int, *, sees: Callable[[Project], bool] = _everything) -> JobWhy:
        """Why a job waits, or ended as it did; of a project that the caller does not see neither path nor jobs."""
        job = await self._job(job_id)
        family, project = await self._store.family(job.pipeline_id), await self._store.project(job.project_id)
        if family is None or project is None:
            raise NotFoundError(f"job {job_id} lacks its pipeline or project in the store")
        downstream = await self._store.downstream(job.id) if job.is_trigger else None
        there = await self._store.project(downstream.project_id) if downstream else None
        upstream_id = family.pipeline.upstream_job_id
        upstream = await self._store.job(upstream_id) if upstream_id is not None else None
        above = await self._store.project(upstream.project_id) if upstream else None
        holder = None
        if job.state is JobState.WAITING_FOR_RESOURCE:
            holder = await self._store.first_of_group(job.project_id, job.resource_group, OCCUPYING)
        return explain(
            Situation(
                job=job,
                family=family,
                project=project.path,
                now=self._clock.now(),
                runner=await self._store.runner(job.runner_id) if job.runner_id is not None else None,
                holder=holder,
                downstream=downstream,
                downstream_project=there.path if there and sees(there) else "",
                upstream=upstream if above and sees(above) else None,
                shortage=await self._shortage(job) if job.state is JobState.PENDING and not job.is_trigger else None,
            )
        )

    async def _shortage(self, job: Job) -> Shortage:
        now, need = self._clock.now(), job.key()
        # Of other organizations nobody learns anything, not even how many runners they have.
        runners = tuple(seen for seen in await self._seen() if seen.runner.organization_id == job.organization_id)
        matching = [seen.runner for seen in runners if fits(seen.runner.fingerprint(), need)]
        # Where all are paused, what they will do when they are resumed is what counts.
        active = [runner for runner in matching if not runner.paused] or matching
        place = self._waiting.place(job.id, {runner.fingerprint() for runner in active}, now)
        since = job.pending_at or job.created_at
        estimate = self._pick_ups.estimate(need, place.ahead, now, since=since) if place else None
        return Shortage(runners=runners, place=place, estimate=estimate)

    async def _seen(self) -> tuple[Seen, ...]:
        """All runners, with when they were heard of and what they have."""
        runners, _ = await self._store.runners(_ALL)
        heard: dict[RunnerId, float] = {}
        for manager in await self._store.all_managers():
            heard[manager.runner_id] = max(heard.get(manager.runner_id, 0.0), manager.contacted_at)
        has = Counter(job.runner_id for job in self._with_runners.values())
        return tuple(
            Seen(runner=runner, contacted_at=heard.get(runner.id), jobs=has[runner.id]) for runner in reversed(runners)
        )
