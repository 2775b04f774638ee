"""Hands waiting jobs out to runners. A job is LEASED from its stored hand-out until its runner confirms the start. The
HTTP edge first calls `try_request_job`, which trusts cached data and mostly needs one call of the store; if that
returns None, `request_job`. Invariants: a payload is sent only after the lease of its job is stored. A job is handed
out again only from the state LEASED, under a new epoch (number of the hand-out); once it has started, never."""

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
from remuda.cell.core.waiting.priority_delay import Offer, delay_seconds, offers_of
from remuda.cell.dispatch.held_polls import HangUp, Wake
from remuda.cell.dispatch.job_cache import has_begun
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.memory import DispatchMemory
from remuda.cell.dispatch.payload_inputs import draft_payload, policy_settings, store_draft
from remuda.cell.errors import (
    CannotStartError,
    MissingDependencyError,
    NotFoundError,
    ProjectDeletedError,
    StoreError,
)
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Page, Pipeline, Project, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.lib import killpoints
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.model.job import FailureReason, JobId, JobState, ProjectId
from remuda.model.runner import Fingerprint, RunnerType
from remuda.telemetry.logs import logger
from remuda.wire.runner_api import JobInfo, JobPayload, RequestJob

MAX_COUNTED_JOBS = 5
"""This and higher numbers of jobs of a project are sent to the runner as "5+": it is a label of a metric there."""
OFFERS_SECONDS = 10.0
"""How old the list of all runners may be."""
REFRESH_SECONDS = 4.0
"""Interval between two reads of keys and runners. It is shorter than the time for which they are cached."""
ALIKE = 32
"""With at least this many equally good waiting jobs, each process of a cell prefers every second one (`_choose`). Also
the maximum number of jobs that are read together."""
_ALL = Page(size=100_000)

_log = logger("cell")


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was handed out, with its payload: the answer to the runner that requested a job."""

    job: Job
    runner: Runner
    payload: JobPayload
    project: Project
    pipeline: Pipeline


class NoJob(msgspec.Struct, frozen=True, kw_only=True):
    """The answer if there is no job. The runner sends `cursor` (X-GitLab-Last-Update) back with its next request."""

    cursor: str


class _Leased(NamedTuple):
    job: Job
    parts: PayloadParts | None = None


class _RunnerChangedError(Exception):
    """The runner changed while its request was held: it was paused or removed, or has other tags or another token."""

    def __init__(self, runner: Runner | None) -> None:
        super().__init__()
        self.runner = runner


class Handout:
    """Answers job requests of runners: chooses a waiting job, stores its lease to the runner, builds its payload."""

    def __init__(
        self,
        store: Store,
        memory: DispatchMemory,
        changes: JobChanges,
        keys: KeyRing,
        clock: Clock,
        settings: CellSettings,
    ) -> None:
        self._store = store
        self._memory = memory
        self._changes = changes
        self._keys = keys
        self._clock = clock
        self._settings = settings
        self._waiting_jobs = memory.waiting_jobs
        self._held_polls = memory.held_polls
        self._offers: frozenset[Offer] = frozenset()
        self._offers_at = -math.inf
        self._parity = 0

    async def try_request_job(
        self, runner: Runner, request: RequestJob, *, request_id: str, ip: str, gone: HangUp
    ) -> Assignment | NoJob | None:
        """Hand out the first waiting job that fits, without reading the runner, and the job only if it is not cached.
        Returns None if no job fits, a runner with a higher priority may take it first, or the store refuses because the
        cached job or runner is out of date; then call `request_job`. Returns NoJob if the payload cannot be built (the
        job fails), or the client has disconnected (`gone`; the job goes back into the queue)."""
        now = self._clock.now()
        job_id = None if self._held_polls.stopped or runner.paused else self._choose(runner.fingerprint(), now)
        if job_id is None or await self._priority_delay(runner, job_id) > 0:
            return None
        terms = self._lease_terms(runner, request, request_id, now)
        leased = await self._lease(job_id, terms, now, runner, is_woken=False, use_cache_only=True)
        if leased is None:
            return None
        return await self._deliver(leased, runner, _features(request), ip=ip, gone=gone)

    async def request_job(
        self,
        runner: Runner,
        request: RequestJob,
        *,
        request_id: str,
        ip: str,
        gone: HangUp,
        changes: int | None = None,
    ) -> Assignment | NoJob:
        """Hand out a waiting job; if none fits, wait as long as `core.waiting.poll_hold` says, then return NoJob. A
        repeated request (same `request_id`) gets the same job again. `gone` is set when the client disconnects. If the
        runner changes meanwhile, its new tags and so on count. `changes`: `HeldPolls.changes` before it was read."""
        if request_id and (job := await self._store.jobs.find_leased_job(runner.id, request_id)):
            _log.info("job request repeated; handing out the same job again", job=job.id, runner=runner.id)
            return await self._deliver(_Leased(job), runner, _features(request), ip=ip, gone=gone)
        is_woken = False
        changes = self._held_polls.changes if changes is None else changes
        began = self._clock.monotonic()
        while not (self._held_polls.stopped or runner.paused or gone.is_set()):
            try:
                leased = await self._lease_first(runner, request, request_id, is_woken=is_woken)
            except _RunnerChangedError as changed:
                is_woken = False
                if changed.runner is None or changed.runner.token_hash != runner.token_hash:
                    break
                runner = changed.runner
                continue
            if leased is not None:
                return await self._deliver(leased, runner, _features(request), ip=ip, gone=gone)
            seconds = began + hold_seconds(request, runner, self._settings) - self._clock.monotonic()
            wake = await self._held_polls.hold(
                runner.fingerprint(), seconds, gone, runner_id=runner.id, priority=runner.priority, changes=changes
            )
            if wake is Wake.NOTHING:
                break
            is_woken = wake is Wake.JOB
            if wake is Wake.RUNNER_CHANGED:
                changes = self._held_polls.changes
                current = await self._store.runners.load_runner(runner.id)
                if current is None or current.token_hash != runner.token_hash:
                    break
                runner = current
        self._held_polls.wake()
        return NoJob(cursor=self._memory.cursor)

    async def _lease_first(
        self, runner: Runner, request: RequestJob, request_id: str, *, is_woken: bool
    ) -> _Leased | None:
        """Store that the runner gets the first waiting job that fits it; None if no job fits. `is_woken`: the request
        was held, so `runner` may be out of date. Raises _RunnerChangedError if it is."""
        try:
            while (job_id := self._choose(runner.fingerprint(), self._clock.now())) is not None:
                if (pause := await self._priority_delay(runner, job_id)) > 0:
                    await self._clock.sleep(pause)
                    continue
                now = self._clock.now()
                terms = self._lease_terms(runner, request, request_id, now)
                leased = await self._lease(job_id, terms, now, runner, is_woken=is_woken)
                if leased is not None:
                    return leased
                self._parity = random.randrange(2)
            return None
        finally:
            self._held_polls.wake()

    def _choose(self, fingerprint: Fingerprint, now: float) -> JobId | None:
        """Choose a waiting job that fits; None if none does. Of many equally good jobs, processes that share a store
        prefer even or odd ids at random, so that they choose different ones."""
        job_id = self._waiting_jobs.choose(fingerprint, now)
        if job_id is None or not self._settings.is_shared or self._waiting_jobs.as_good(job_id) < ALIKE:
            return job_id
        alike = self._waiting_jobs.alike(job_id, ALIKE)
        return next((other for other in alike if other % 2 == self._parity), job_id)

    def _lease_terms(self, runner: Runner, request: RequestJob, request_id: str, now: float) -> leases.Lease:
        return leases.Lease(
            runner_id=runner.id,
            system_id=request.system_id,
            request_id=request_id or None,
            until=now + self._settings.lease_seconds,
            graceful_cancel=bool(_features(request).get("cancel_gracefully")),
            two_phase=bool(_features(request).get("two_phase_job_commit")),
        )

    async def _priority_delay(self, runner: Runner, job_id: JobId) -> float:
        """Return how many seconds this runner must still leave the job to runners with a higher priority."""
        waiting, now = self._waiting_jobs.how(job_id), self._clock.now()
        if waiting is None or not self._settings.is_shared:
            return 0.0
        if self._clock.monotonic() - self._offers_at >= OFFERS_SECONDS:
            await self._load_offers()
        return delay_seconds(runner.priority, waiting.key, self._offers, since=waiting.since, now=now)

    async def _load_offers(self) -> None:
        self._offers_at = self._clock.monotonic()
        runners, _ = await self._store.runners.list_runners(_ALL)
        self._offers = offers_of(runners, await self._store.runners.list_all_managers(), self._clock.now())

    async def refresh_caches(self, stop: asyncio.Event) -> None:
        """Until `stop`, reload signing keys and runners before their caches expire: no job request waits for them."""
        while not stop.is_set():
            try:
                await self._keys.load()
                if self._settings.is_shared:
                    await self._load_offers()
            except StoreError as error:
                _log.warning(
                    "cannot refresh signing keys and runners; serving from cache and trying again", error=str(error)
                )
            await wait_for_any_event(self._clock, stop, within_seconds=REFRESH_SECONDS, name="refresh caches")

    async def _lease(
        self,
        job_id: JobId,
        terms: leases.Lease,
        now: float,
        runner: Runner,
        *,
        is_woken: bool,
        use_cache_only: bool = False,
    ) -> _Leased | None:
        """Store that the runner gets a chosen job. If the store refuses because the cached job or runner is out of
        date, try the current job, unless `use_cache_only`. A job not pending any more leaves the queue. Returns None if
        not leased. `is_woken`: the request was held; _RunnerChangedError is raised if the runner has changed since."""
        if job_id not in self._waiting_jobs:
            return None  # another request of this process took it since it was chosen
        recent_jobs = self._memory.recent_jobs
        ahead = [] if job_id in recent_jobs else list(self._waiting_jobs.alike(job_id, ALIKE))
        waiting, pending = self._waiting_jobs.take(job_id), recent_jobs.pop(job_id, None)
        leased: _Leased | None = None
        may_be_pending = True
        try:
            pending = pending or await self._read_ahead(job_id, ahead)
            row = leases.lease(pending, terms, now) if pending else None
            if pending and row:
                parts = await self._store.jobs.lease_job(pending, row, runner, policy_settings(row))
                leased = _Leased(row, parts) if parts else None
            if leased is None and not use_cache_only:
                if is_woken and (current := await self._store.runners.load_runner(runner.id)) != runner:
                    raise _RunnerChangedError(current)
                row = await self._store.jobs.change_job(job_id, lambda job: leases.lease(job, terms, now))
                leased = _Leased(row) if row else None
                may_be_pending = False
        finally:
            # After an error it is unknown whether the lease was stored. If it was, it expires.
            if leased is None and may_be_pending and waiting:
                self._waiting_jobs.put_back(job_id, waiting)
                self._held_polls.wake()
        if leased is not None:
            job = leased.job
            self._memory.track_assigned(job)
            self._memory.changed_jobs.note(job.id)
            self._memory.pick_ups.note(runner.fingerprint(), at=now, since=job.pending_at or job.created_at)
        return leased

    async def _read_ahead(self, job_id: JobId, ahead: Sequence[JobId]) -> Job | None:
        """Read a job that is no longer cached, in one call with the next ones in the queue (`ahead`: the ids of all).
        Caches the others that are still pending. Returns the job; None if it does not exist."""
        jobs = {job.id: job for job in await self._store.jobs.load_jobs(ahead)}
        chosen = jobs.pop(job_id, None)
        for job in jobs.values():
            if job.id in self._waiting_jobs and job.state is JobState.PENDING:
                self._memory.remember_recent(job)
        return chosen

    async def _deliver(
        self, leased: _Leased, runner: Runner, features: Mapping[str, bool], *, ip: str, gone: HangUp
    ) -> Assignment | NoJob:
        job = leased.job
        killpoints.reach("cell.leased")
        try:
            parts = leased.parts or await self._store.jobs.load_payload_parts(job, policy_settings(job))
            assignment = await self._assignment(job, runner, features, parts)
        except (NotFoundError, MissingDependencyError, CannotStartError) as error:
            await self._changes.fail(job, _failure_reason(error), str(error))
        except StoreError:
            with contextlib.suppress(StoreError):
                await self._changes.release(job)
            raise
        except Exception as error:  # noqa: BLE001 - otherwise it would be handed out again for ever
            _log.error("cannot build the payload of a job; failing the job", job=job.id, exc_info=error)
            message = "the cell failed to build its payload; the log of the cell has the error"
            await self._changes.fail(job, FailureReason.SCHEDULER_FAILURE, message, before_script=True)
        else:
            if not gone.is_set():
                _log.debug(
                    "job handed out to a runner",
                    job=job.id,
                    runner=runner.id,
                    system_id=job.system_id,
                    ip=ip,
                    epoch=job.epoch,
                )
                return assignment
            await self._changes.release(job)
        return NoJob(cursor=self._memory.cursor)

    async def _assignment(
        self, job: Job, runner: Runner, features: Mapping[str, bool], parts: PayloadParts
    ) -> Assignment:
        draft = await draft_payload(
            self._store,
            self._keys,
            job,
            runner,
            parts,
            features=features,
            public_url=self._settings.public_url,
            now=self._clock.wall(),
        )
        job = await store_draft(self._store, draft)
        self._memory.job_cache.note(job, in_running=has_begun(draft.context.pipeline))
        payload = replace(draft.payload, job_info=self._with_count(draft.payload.job_info, runner))
        context = draft.context
        return Assignment(job=job, runner=runner, payload=payload, project=context.project, pipeline=context.pipeline)

    def _with_count(self, info: JobInfo, runner: Runner) -> JobInfo:
        """Add how many other jobs of the project runners have; as in GitLab, "+Inf" if not an instance runner."""
        others = max(self._memory.assigned_per_project[ProjectId(info.project_id)] - 1, 0)
        count = str(others) if others < MAX_COUNTED_JOBS else f"{MAX_COUNTED_JOBS}+"
        is_shared = runner.type is RunnerType.INSTANCE
        return replace(info, project_jobs_running_on_instance_runners_count=count if is_shared else "+Inf")


def _features(request: RequestJob) -> Mapping[str, bool]:
    return (request.info.features if request.info else None) or {}


def _failure_reason(error: NotFoundError | MissingDependencyError | CannotStartError) -> FailureReason:
    match error:
        case CannotStartError():
            return error.reason
        case MissingDependencyError():
            return FailureReason.MISSING_DEPENDENCY_FAILURE
        case ProjectDeletedError():
            return FailureReason.PROJECT_DELETED
        case _:
            return FailureReason.DATA_INTEGRITY_FAILURE
