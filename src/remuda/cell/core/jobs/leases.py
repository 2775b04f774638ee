"""The lease of a job: handing it out to a runner, acknowledgement or return to the queue, and when a runner that does
not call counts as gone. These functions change only the job; those in `lifecycle` also its pipeline. Invariant: every
hand-out increases the epoch of the job, and nothing else does, so the token of an earlier hand-out is invalid."""

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core.waiting.downtime import Outage, latest_end
from remuda.cell.settings import CellSettings
from remuda.cell.values import Job
from remuda.model.job import STARTED, JobEvent, JobState, RunnerId, after

_AHEAD_SECONDS = 60.0
"""Allowed difference between the clocks of two machines of a cell."""
_TOUCHES_PER_SILENCE = 60
"""How often a sign of life is stored within the allowed silence; more writes would be useless."""
_TOUCHES_PER_CANCEL = 6
"""How often a sign of life is stored within the allowed silence of a job that is being canceled."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of giving a job to a runner: to whom, until when it must be acknowledged, what the manager supports."""

    runner_id: RunnerId
    system_id: str | None
    request_id: str | None
    until: float
    graceful_cancel: bool = False
    two_phase: bool = False


def lease(job: Job, terms: Lease, now: float) -> Job | None:
    """Return the job as leased, that is given to a runner; None if it is not pending any more."""
    if job.state is not JobState.PENDING:
        return None
    return replace(
        job,
        state=after(job.state, JobEvent.LEASE),
        epoch=job.epoch + 1,
        runner_id=terms.runner_id,
        system_id=terms.system_id,
        request_id=terms.request_id,
        lease_until=terms.until,
        graceful_cancel=terms.graceful_cancel,
        two_phase=terms.two_phase,
        leased_at=now,
        updated_at=now,
    )


def acknowledge(job: Job, epoch: int, now: float) -> Job | None:
    """Record the runner's call, and start the job if it is leased. Returns None if the job has ended, is back in the
    queue, or was given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state not in (JobState.LEASED, *STARTED):
        return None
    started_at = job.start_time()
    return replace(
        job,
        state=after(job.state, JobEvent.ACKNOWLEDGE),
        started_at=now if started_at is None else started_at,
        updated_at=now,
        lease_until=None,
    )


def put_off_end(job: Job, epoch: int, now: float) -> Job | None:
    """Record that the runner reported the end before its whole log arrived. None if that was recorded before, or the
    job has not started, has ended or was given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state not in STARTED or job.end_put_off_at is not None:
        return None
    return replace(job, end_put_off_at=now)


def refuse_log(job: Job, epoch: int, now: float) -> Job | None:
    """Record that the runner must send its whole log again. Returns None if the job has not started, has ended or was
    given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state not in STARTED:
        return None
    return replace(job, end_put_off_at=job.end_put_off_at or now, is_log_refused=True)


def note_traced(job: Job, epoch: int) -> Job | None:
    """Record that the scripts of the job print their commands. Returns None if the job has not started, has ended or
    was given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state not in STARTED:
        return None
    return replace(job, is_traced=True)


def note_warnings(job: Job, epoch: int, warnings: tuple[str, ...]) -> Job | None:
    """Record what the runner says that the job does not get. Returns None if the job has not started, has ended or was
    given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state not in STARTED:
        return None
    return replace(job, warnings=warnings)


def release(job: Job, epoch: int, now: float) -> Job | None:
    """Put a leased job back into the queue, with the waiting time that it had. Returns None if it is not leased any
    more, or was given to a runner again: its `epoch` (number of hand-outs) differs."""
    if job.epoch != epoch or job.state is not JobState.LEASED:
        return None
    return replace(
        job,
        state=after(job.state, JobEvent.RELEASE),
        runner_id=None,
        system_id=None,
        request_id=None,
        lease_until=None,
        graceful_cancel=False,
        two_phase=False,
        leased_at=None,
        updated_at=now,
    )


def is_unheard(job: Job) -> bool:
    """Return whether the runner that got the job has not acknowledged it yet."""
    return job.state is JobState.LEASED or (job.state is JobState.CANCELING and job.lease_until is not None)


def needs_touch(job: Job, now: float, settings: CellSettings) -> bool:
    """Return whether a runner's call at `now` must be stored as a sign of life; most are not, to save writes."""
    # A time in the future was stored before the clock was set back.
    return is_unheard(job) or abs(now - job.updated_at) >= _touch_seconds(job, settings)


def deadline(
    job: Job,
    settings: CellSettings,
    *,
    since: float,
    now: float = math.inf,
    outages: Sequence[Outage] | None = None,
) -> float | None:
    """Return when the runner of this job counts as gone if it does not call; None if no runner has the job. The allowed
    silence starts at its last stored call (or when it got the job), but not before `since`, when this process began to
    receive calls. If the cell was down often (`outages`), it ends at the latest when the cell was up for `MAX_FACTOR`
    times the allowed silence (`core.waiting.downtime`). A started job gets a little more time, because its last calls
    are perhaps not stored; one that is being canceled gets less, because only its after_script still runs. A stored
    time far after `now` (the clock was set back) is replaced by `since`."""
    if job.is_trigger:
        return None
    if is_unheard(job):
        leased_at, lease_seconds = job.leased_at or since, settings.lease_seconds
        if leased_at > now + _AHEAD_SECONDS:
            return since + lease_seconds
        until = max(job.lease_until or 0.0, since + lease_seconds)
        return min(until, latest_end(leased_at, lease_seconds, outages))
    if job.state in STARTED:
        silent_seconds = _silence_seconds(job, settings) + _touch_seconds(job, settings)
        heard_at = job.updated_at if job.updated_at <= now + _AHEAD_SECONDS else since
        return min(max(heard_at, since) + silent_seconds, latest_end(heard_at, silent_seconds, outages))
    return None


def _silence_seconds(job: Job, settings: CellSettings) -> float:
    is_canceling = job.state is JobState.CANCELING
    return min(settings.canceling_seconds, settings.silent_seconds) if is_canceling else settings.silent_seconds


def _touch_seconds(job: Job, settings: CellSettings) -> float:
    touches = _TOUCHES_PER_CANCEL if job.state is JobState.CANCELING else _TOUCHES_PER_SILENCE
    return _silence_seconds(job, settings) / touches
