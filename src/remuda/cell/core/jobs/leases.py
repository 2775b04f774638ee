"""The hand-out of one job: lease, acknowledgement, release, and when silence means that the runner is gone.

Decided here is what happens to the job alone; what follows for its pipeline is in `lifecycle`. Dispatch calls these
inside the store's transaction.

Invariant: the epoch grows with every lease and with nothing else, so a token of an earlier hand-out opens nothing.
"""

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core.waiting.downtime import Outage, latest_end
from remuda.cell.settings import CellSettings
from remuda.cell.values import Job
from remuda.model.job import STARTED, JobEvent, JobState, RunnerId, after

_AHEAD_SECONDS = 60.0
"""How far the clocks of two machines of one cell may be apart."""
_TOUCHES_PER_SILENCE = 60
"""How many times the keep-alive is stored within the silence that is allowed; more writes would tell nothing new."""
_TOUCHES_PER_CANCEL = 6
"""The same while a job is being canceled."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who gets a job, and until when it must have spoken."""

    runner_id: RunnerId
    system_id: str | None
    request_id: str | None
    until: float
    graceful_cancel: bool = False
    two_phase: bool = False


def lease(job: Job, terms: Lease, now: float) -> Job | None:
    """The job handed out; None when it does not wait any more."""
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
    """The runner spoke: started now, or with its hand-out, or still alive. None when it is not the one that has it."""
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
    """The runner says that it is over before all of its trace is there. None when that was noted before."""
    if job.epoch != epoch or job.state not in STARTED or job.end_put_off_at is not None:
        return None
    return replace(job, end_put_off_at=now)


def refuse_log(job: Job, epoch: int, now: float) -> Job | None:
    """The runner says that it is over, and that it logged other bytes than are stored: it sends them again."""
    if job.epoch != epoch or job.state not in STARTED:
        return None
    return replace(job, end_put_off_at=job.end_put_off_at or now, is_log_refused=True)


def release(job: Job, epoch: int, now: float) -> Job | None:
    """Back to the queue; None when the runner has spoken or the lease is another's. The wait goes on from its start."""
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
    """Whether its runner has not spoken since it got the job, as far as is stored."""
    return job.state is JobState.LEASED or (job.state is JobState.CANCELING and job.lease_until is not None)


def needs_touch(job: Job, now: float, settings: CellSettings) -> bool:
    """Whether this sign of life has to be stored."""
    # One from a time to come was stored before the machine's clock was set back.
    return is_unheard(job) or abs(now - job.updated_at) >= _touch_seconds(job, settings)


def deadline(
    job: Job,
    settings: CellSettings,
    *,
    since: float,
    now: float = math.inf,
    outages: Sequence[Outage] | None = None,
) -> float | None:
    """When the runner that has this job counts as gone; None when none has it: a trigger job is the cell's own.

    `since` is when this process began to listen: nobody is gone because the cell itself was away, unless it is away so
    often that this would never end (`outages`). A started job gets a little more than the allowed silence, because its
    last signs of life may not have been stored. One that is being canceled waits for nothing but its after_script, of
    which a runner that is there lets hear. What was stored at a time to come counts as stored at the start.
    """
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
    """How often a sign of life is stored."""
    touches = _TOUCHES_PER_CANCEL if job.state is JobState.CANCELING else _TOUCHES_PER_SILENCE
    return _silence_seconds(job, settings) / touches
