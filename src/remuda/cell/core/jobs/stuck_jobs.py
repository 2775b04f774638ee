"""When a job has waited or run for so long that it will not end well by itself, and what it fails with.

Decided here: GitLab's rules for stuck jobs. Whether a runner that has a job is still there is decided in `leases`; this
is about jobs that nobody takes, that run on though their time is over, and delayed ones whose time is long past. Pure;
`remuda.cell.dispatch.timeouts` looks again and again.

Invariant: nobody loses a job because the cell itself was away. `since` is when this process began to listen; what a
runner could have said or taken before that does not count as not done, unless the cell is away again and again
(`outages`, see `presence`).
"""

from collections.abc import Iterable, Sequence

from remuda.cell.core.waiting.downtime import Outage, latest_end
from remuda.cell.settings import CellSettings
from remuda.cell.values import Job, Project, Runner, RunnerManager
from remuda.cell.values.people import ONLINE_SECONDS
from remuda.model.job import STARTED, FailureReason, JobState, RunnerId
from remuda.model.runner import Fingerprint, fits

Verdict = tuple[FailureReason, str]
"""What a job fails with, and why in words."""


def may_be_stuck(
    job: Job, settings: CellSettings, *, since: float, now: float, outages: Sequence[Outage] | None = None
) -> bool:
    """Whether a pending job has waited so long that it is worth a look who could take it."""
    if job.is_trigger:
        return False
    pending_at, limit = _wait_start(job), settings.unserved_seconds
    return now >= min(max(pending_at, since) + limit, latest_end(pending_at, limit, outages))


def online_offers(
    runners: Iterable[Runner], managers: Iterable[RunnerManager], has_jobs: frozenset[RunnerId], now: float
) -> frozenset[Fingerprint]:
    """What is offered by runners that are there: heard of lately, or with a job; one that is paused takes none."""
    heard = {manager.runner_id for manager in managers if now - manager.contacted_at < ONLINE_SECONDS}
    there = heard | has_jobs
    return frozenset(runner.fingerprint() for runner in runners if not runner.paused and runner.id in there)


def check_stuck(job: Job, offers: Iterable[Fingerprint], settings: CellSettings, now: float) -> Verdict | None:
    """What to do with a job that may be stuck."""
    key = job.key()
    if not any(fits(offer, key) for offer in offers):
        return (
            FailureReason.STUCK_PENDING_NO_MATCHING_RUNNERS,
            f"no runner that could take it has been there for {_hours(settings.unserved_seconds)}",
        )
    if now - _wait_start(job) >= settings.pending_seconds:
        return (
            FailureReason.STUCK_PENDING_WITH_MATCHING_RUNNERS,
            f"no runner has taken it for {_hours(settings.pending_seconds)}, though some could",
        )
    return None


def check_overtime(
    job: Job,
    timeout_seconds: float,
    settings: CellSettings,
    *,
    since: float,
    now: float,
    outages: Sequence[Outage] | None = None,
) -> Verdict | None:
    """What to do with a job that a runner has: its runner should have ended it when its time was over."""
    if job.state not in STARTED or job.started_at is None:
        return None
    over_at, limit = job.started_at + timeout_seconds, settings.overtime_seconds
    if now < min(max(over_at, since) + limit, latest_end(over_at, limit, outages)):
        return None
    is_running = job.state is JobState.RUNNING
    reason = FailureReason.SERVER_TIMEOUT_RUNNING if is_running else FailureReason.SERVER_TIMEOUT_CANCELING
    return reason, f"it had {timeout_seconds:g} s, and its runner did not end it"


def may_be_overtime(job: Job, settings: CellSettings, now: float) -> bool:
    """Whether it is worth to look how long the job may run."""
    return not job.is_trigger and job.started_at is not None and now - job.started_at >= settings.overtime_seconds


def timeout_of(job: Job, project: Project | None, runner: Runner | None) -> int:
    """How many seconds a job may run: its own limit or the project's, within the runner's."""
    wanted = job.timeout_seconds or (project.timeout_seconds if project else 3600)
    return min(wanted, runner.maximum_timeout) if runner and runner.maximum_timeout else wanted


def check_stale(job: Job, settings: CellSettings, now: float) -> Verdict | None:
    """What to do with a delayed job whose time has come."""
    late = now - (job.scheduled_at or now)
    if late < settings.stale_seconds:
        return None
    return FailureReason.STALE_SCHEDULE, f"its time came {_hours(late)} ago, when the cell was away"


def _wait_start(job: Job) -> float:
    return job.pending_at or job.created_at


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return "1 hour" if hours == 1 else f"{hours:.1f} hours".replace(".0 ", " ")
