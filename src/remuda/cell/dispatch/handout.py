"""Handing jobs out: which of the waiting jobs a runner gets, and what happens when nobody is there to take it.

Decided here is little: `remuda.queue` says which job, `core.leases` what a lease is, `polls` who is woken, and
`core.deference` who leaves a job to others. A payload goes out only when the lease of its job is stored; what it is
made of comes with the lease. A hand-out is first tried with the job and the runner as they are known, which takes one
call of the store, and only where that fails with what they are now. The HTTP edge calls `take_job`, then `request_job`.

Invariant: a job is handed out again only while it is leased, under a new epoch; once it has started, never.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs import leases
from remuda.cell.core.waiting.poll_hold import hold_seconds
from remuda.cell.core.waiting.priority_delay import Offer, deference_seconds, offers_of
from remuda.cell.dispatch.held_polls import HangUp
from remuda.cell.dispatch.job_changes import Motion, has_begun
from remuda.cell.dispatch.payload_inputs import gather_payload, keep, policy_settings
from remuda.cell.errors import (
    CannotStartError,
    MissingDependencyError,
    NotFoundError,
    ProjectDeletedError,
    StoreError,
)
from remuda.cell.values import Job, Page, Pipeline, Project, Runner
from remuda.cell.values.changes import Belongings
from remuda.lib import killpoints
from remuda.lib.waiting import happens_by
from remuda.model.job import FailureReason, JobId, JobState, ProjectId
from remuda.model.runner import Fingerprint, RunnerType
from remuda.wire.runner_api import JobInfo, JobPayload, RequestJob

MANY = 5
"""More jobs of a project than this are not counted for the runner: it is a label of a metric there."""


OFFERS_SECONDS = 10.0
"""For so long it is good enough to know which runners there are."""
LOOK_AHEAD_SECONDS = 4.0
"""More often than keys and runners have to be read again."""
ALIKE = 32
"""Where so many jobs wait that are as good as each other, a process of a cell begins with every second of them. If each
process chose the oldest, they would choose the same, and every second claim would be lost to another one. Nobody says
who has the even ones: a process whose claim was lost draws anew, until two are apart."""
_ALL = Page(size=100_000)


class Handout(msgspec.Struct, frozen=True, kw_only=True):
    """A job for the runner that asked."""

    job: Job
    runner: Runner
    payload: JobPayload
    project: Project
    pipeline: Pipeline


class NoJob(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing now. The cursor goes back to the runner, which shows it with its next request."""

    cursor: str


class _Leased(NamedTuple):
    """A job that was leased, and what its payload is made of, if that came with the lease."""

    job: Job
    has: Belongings | None = None


class _RunnerChangedError(Exception):
    """A runner is not what it was when it began to wait: paused, offering something else, with another token, gone."""

    def __init__(self, now: Runner | None) -> None:
        super().__init__()
        self.now = now


class Claims(Motion):
    """The part of dispatch that hands out."""

    _offers: frozenset[Offer] = frozenset()
    _offers_at = -math.inf
    _parity = 0

    async def take_job(
        self, runner: Runner, request: RequestJob, *, request_id: str, ip: str, gone: HangUp
    ) -> Handout | NoJob | None:
        """The first job that waits for this runner, which need not have been read now: a hand-out to one that is
        another by now is not stored. None when nothing is, for whatever reason: `request_job` looks closely.
        """
        now = self._clock.now()
        job_id = None if self._polls.stopped or runner.paused else self._choose(runner.fingerprint(), now)
        if job_id is None or await self._deference(runner, job_id) > 0:
            return None
        terms = self._terms(runner, request, request_id, now)
        leased = await self._lease(job_id, terms, now, runner, is_woken=False, closely=False)
        if leased is None:
            return None
        return await self._deliver(leased, runner, _features(request), ip=ip, gone=gone)

    async def request_job(
        self, runner: Runner, request: RequestJob, *, request_id: str, ip: str, gone: HangUp
    ) -> Handout | NoJob:
        """The job this runner gets, or none; held while there is none as `core.poll_hold` says."""
        if request_id and (again := await self._store.leased_by_request(runner.id, request_id)):
            self._log.info("job handed out again to the same request", job=again.id, runner=runner.id)
            return await self._deliver(_Leased(again), runner, _features(request), ip=ip, gone=gone)
        is_woken = False
        began = self._clock.monotonic()
        while not (self._polls.stopped or runner.paused or gone.is_set()):
            try:
                leased = await self._claim(runner, request, request_id, is_woken=is_woken)
            except _RunnerChangedError as changed:
                is_woken = False
                if changed.now is None or changed.now.token_hash != runner.token_hash:
                    break
                runner = changed.now
                continue
            if leased is not None:
                return await self._deliver(leased, runner, _features(request), ip=ip, gone=gone)
            left = began + hold_seconds(request, runner, self._settings) - self._clock.monotonic()
            is_woken = await self._polls.hold(runner.fingerprint(), left, gone, priority=runner.priority)
            if not is_woken:
                break
        self._polls.wake()
        return NoJob(cursor=self.cursor)

    async def _claim(self, runner: Runner, request: RequestJob, request_id: str, *, is_woken: bool) -> "_Leased | None":
        """Lease the first waiting job that fits; a job that was lost to someone else is dropped.

        `is_woken`: the runner is known from before it waited; _RunnerChangedError when it is another by now.
        """
        try:
            while (job_id := self._choose(runner.fingerprint(), self._clock.now())) is not None:
                if (pause := await self._deference(runner, job_id)) > 0:
                    await self._clock.sleep(pause)
                    continue
                now = self._clock.now()
                terms = self._terms(runner, request, request_id, now)
                leased = await self._lease(job_id, terms, now, runner, is_woken=is_woken)
                if leased is not None:
                    return leased
                self._parity = random.randrange(2)
            return None
        finally:
            self._polls.wake()

    def _choose(self, fingerprint: Fingerprint, now: float) -> JobId | None:
        """The job that this process would give to such a runner now."""
        job_id = self._waiting.choose(fingerprint, now)
        if job_id is None or not self._settings.is_shared or self._waiting.as_good(job_id) < ALIKE:
            return job_id
        alike = self._waiting.alike(job_id, ALIKE)
        return next((one for one in alike if one % 2 == self._parity), job_id)

    def _terms(self, runner: Runner, request: RequestJob, request_id: str, now: float) -> leases.Lease:
        return leases.Lease(
            runner_id=runner.id,
            system_id=request.system_id,
            request_id=request_id or None,
            until=now + self._settings.lease_seconds,
            graceful_cancel=bool(_features(request).get("cancel_gracefully")),
            two_phase=bool(_features(request).get("two_phase_job_commit")),
        )

    async def _deference(self, runner: Runner, job_id: JobId) -> float:
        """How many seconds this runner leaves the job to a better one that may wait at another process."""
        how, now = self._waiting.how(job_id), self._clock.now()
        if how is None or not self._settings.is_shared:
            return 0.0
        if self._clock.monotonic() - self._offers_at >= OFFERS_SECONDS:
            await self._read_offers()
        return deference_seconds(runner.priority, how.key, self._offers, since=how.since, now=now)

    async def _read_offers(self) -> None:
        self._offers_at = self._clock.monotonic()
        runners, _ = await self._store.runners(_ALL)
        self._offers = offers_of(runners, await self._store.all_managers(), self._clock.now())

    async def look_ahead(self, stop: asyncio.Event) -> None:
        """Until told to stop: read what hand-outs need from time to time before they do, so that none waits for it."""
        while not stop.is_set():
            try:
                await self._keys.load()
                if self._settings.is_shared:
                    await self._read_offers()
            except StoreError as error:
                self._log.warning("what hand-outs need cannot be read now", error=str(error))
            await happens_by(self._clock, stop, within_seconds=LOOK_AHEAD_SECONDS, name="look ahead")

    async def _lease(
        self, job_id: JobId, terms: leases.Lease, now: float, runner: Runner, *, is_woken: bool, closely: bool = True
    ) -> "_Leased | None":
        """Lease a job that was chosen, None when that is not stored. It is tried with what is known of the job and the
        runner, and then, `closely`, with what they are now: a job that does not wait any more is then dropped."""
        if job_id not in self._waiting:
            return None  # somebody else here has taken it since it was chosen
        ahead = [] if job_id in self._newest else list(self._waiting.alike(job_id, ALIKE))
        waiting, known = self._waiting.take(job_id), self._newest.pop(job_id, None)
        leased: _Leased | None = None
        may_wait = True
        try:
            known = known or await self._read_ahead(job_id, ahead)
            hoped = leases.lease(known, terms, now) if known else None
            if known and hoped and (has := await self._store.lease_job(known, hoped, runner, policy_settings(hoped))):
                leased = _Leased(hoped, has)
            elif closely:
                if is_woken and (found := await self._store.runner(runner.id)) != runner:
                    raise _RunnerChangedError(found)
                row = await self._store.change_job(job_id, lambda job: leases.lease(job, terms, now))
                leased = _Leased(row) if row else None
                may_wait = False
        finally:
            # After an error nobody knows. If it was stored, the next one to choose it finds out, and the lease ends.
            if leased is None and may_wait and waiting:
                self._waiting.put_back(job_id, waiting)
                self._polls.wake()
        if leased is not None:
            job = leased.job
            self._note(job)
            self.changed_jobs.note(job.id)
            self._pick_ups.note(runner.fingerprint(), at=now, since=job.pending_at or job.created_at)
        return leased

    async def _read_ahead(self, job_id: JobId, ahead: Sequence[JobId]) -> Job | None:
        """Read a job that many others went before, with those that come next, and note them as if they were new."""
        jobs = {job.id: job for job in await self._store.some_jobs(ahead)}
        known = jobs.pop(job_id, None)
        for job in jobs.values():
            if job.id in self._waiting and job.state is JobState.PENDING:
                self._note_newest(job)
        return known

    async def _deliver(
        self, leased: "_Leased", runner: Runner, features: Mapping[str, bool], *, ip: str, gone: HangUp
    ) -> Handout | NoJob:
        job = leased.job
        killpoints.reach("cell.leased")
        try:
            has = leased.has or await self._store.belongings(job, policy_settings(job))
            handout = await self._handout(job, runner, features, has)
        except ProjectDeletedError as error:
            await self._end_unasked(job, FailureReason.PROJECT_DELETED, str(error))
            return NoJob(cursor=self.cursor)
        except NotFoundError as error:
            await self._end_unasked(job, FailureReason.DATA_INTEGRITY_FAILURE, str(error))
            return NoJob(cursor=self.cursor)
        except MissingDependencyError as error:
            await self._end_unasked(job, FailureReason.MISSING_DEPENDENCY_FAILURE, str(error))
            return NoJob(cursor=self.cursor)
        except CannotStartError as error:
            await self._end_unasked(job, error.reason, str(error))
            return NoJob(cursor=self.cursor)
        except StoreError:
            with contextlib.suppress(StoreError):
                await self.release(job)
            raise
        except Exception as error:  # noqa: BLE001 - it would be handed out again for ever, and no runner would get it
            self._log.error("a job's payload cannot be made", job=job.id, exc_info=error)
            message = "the cell failed to make what a runner needs for it; its log says how"
            await self._end_unasked(job, FailureReason.SCHEDULER_FAILURE, message, before_script=True)
            return NoJob(cursor=self.cursor)
        if gone.is_set():
            await self.release(job)
            return NoJob(cursor=self.cursor)
        self._log.debug("job handed out", job=job.id, runner=runner.id, system_id=job.system_id, ip=ip, epoch=job.epoch)
        return handout

    async def _handout(self, job: Job, runner: Runner, features: Mapping[str, bool], has: Belongings) -> Handout:
        draft = await gather_payload(
            self._store,
            self._keys,
            job,
            runner,
            has,
            features=features,
            public_url=self._settings.public_url,
            now=self._clock.wall(),
        )
        job = await keep(self._store, draft)
        self._known.note(job, in_running=has_begun(draft.of.pipeline))
        payload = replace(draft.payload, job_info=self._with_count(draft.payload.job_info, runner))
        return Handout(job=job, runner=runner, payload=payload, project=draft.of.project, pipeline=draft.of.pipeline)

    def _with_count(self, info: JobInfo, runner: Runner) -> JobInfo:
        """With how much else of the project is with runners; GitLab tells it only to runners that all share."""
        others = max(self._busy[ProjectId(info.project_id)] - 1, 0)
        count = str(others) if others < MANY else f"{MANY}+"
        is_shared = runner.type is RunnerType.INSTANCE
        return replace(info, project_jobs_running_on_instance_runners_count=count if is_shared else "+Inf")


def _features(request: RequestJob) -> Mapping[str, bool]:
    return (request.info.features if request.info else None) or {}
