"""Finds jobs that wait or run for too long, by GitLab's rules: jobs that no runner takes, jobs that run on after their
timeout, and delayed jobs that are long overdue. After an outage of the cell the limits start again: no pending job
fails earlier than `unserved_seconds` after `since`, the time when this process began to receive calls, and no running
job earlier than `overtime_seconds` after it. But if the cell was down often (`outages`), a job can fail once the cell
was up for `MAX_FACTOR` times the limit (`core.waiting.downtime`)."""

from collections.abc import Iterable, Sequence

from remuda.cell.core.waiting.downtime import Outage, latest_end
from remuda.cell.settings import CellSettings
from remuda.cell.values import Job, Project, Runner, RunnerManager
from remuda.cell.values.people import ONLINE_SECONDS
from remuda.model.job import STARTED, FailureReason, JobState, RunnerId
from remuda.model.runner import Fingerprint, fits

Verdict = tuple[FailureReason, str]
"""The reason that a job fails with, and a message."""


def may_be_stuck(
    job: Job, settings: CellSettings, *, since: float, now: float, outages: Sequence[Outage] | None = None
) -> bool:
    """Return whether a pending job has waited for `unserved_seconds`, so that `check_stuck` must look for a runner.
    Time before `since`, when this process started, does not count; `outages` cannot extend the limit without end."""
    if job.is_trigger:
        return False
    pending_at, limit = _wait_start(job), settings.unserved_seconds
    return now >= min(max(pending_at, since) + limit, latest_end(pending_at, limit, outages))


def online_offers(
    runners: Iterable[Runner], managers: Iterable[RunnerManager], busy: frozenset[RunnerId], now: float
) -> frozenset[Fingerprint]:
    """Return what the available runners accept (tags, scope and protection, as fingerprints). Available are runners
    that are not paused and that are online or have jobs now (`busy`)."""
    online = {manager.runner_id for manager in managers if now - manager.contacted_at < ONLINE_SECONDS} | busy
    return frozenset(runner.fingerprint() for runner in runners if not runner.paused and runner.id in online)


def check_stuck(job: Job, offers: Iterable[Fingerprint], settings: CellSettings, now: float) -> Verdict | None:
    """Return the reason and message with which a job for which `may_be_stuck` is true must fail: no runner in `offers`
    (from `online_offers`) fits it, or it has waited for `pending_seconds`. None if it can still wait."""
    key = job.key()
    if not any(fits(offer, key) for offer in offers):
        return (
            FailureReason.STUCK_PENDING_NO_MATCHING_RUNNERS,
            f"no runner that could take it has been available for {_hours(settings.unserved_seconds)}",
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
    """Return the reason and message to fail a job that still runs `overtime_seconds` after its timeout; else None.
    These begin at `since`, when this process started, or later; `outages` cannot extend them without end."""
    if job.state not in STARTED or job.started_at is None:
        return None
    over_at, limit = job.started_at + timeout_seconds, settings.overtime_seconds
    if now < min(max(over_at, since) + limit, latest_end(over_at, limit, outages)):
        return None
    is_running = job.state is JobState.RUNNING
    reason = FailureReason.SERVER_TIMEOUT_RUNNING if is_running else FailureReason.SERVER_TIMEOUT_CANCELING
    return reason, f"its timeout of {timeout_seconds:g} s is over, and its runner did not end it"


def may_be_overtime(job: Job, settings: CellSettings, now: float) -> bool:
    """Return whether a job has run for `overtime_seconds`; only then must `check_overtime` compare its timeout."""
    return not job.is_trigger and job.started_at is not None and now - job.started_at >= settings.overtime_seconds


def timeout_of(job: Job, project: Project | None, runner: Runner | None) -> int:
    """Return the timeout of a job in seconds: its own or that of the project, but at most the maximum of the runner."""
    seconds = job.timeout_seconds or (project.timeout_seconds if project else 3600)
    return min(seconds, runner.maximum_timeout) if runner and runner.maximum_timeout else seconds


def check_stale(job: Job, settings: CellSettings, now: float) -> Verdict | None:
    """Return the reason and message to fail a delayed job that is overdue by `stale_seconds`; else None."""
    late = now - (job.scheduled_at or now)
    if late < settings.stale_seconds:
        return None
    return FailureReason.STALE_SCHEDULE, f"it should have started {_hours(late)} ago, but the cell could not start it"


def _wait_start(job: Job) -> float:
    return job.pending_at or job.created_at


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return "1 hour" if hours == 1 else f"{hours:.1f} hours".replace(".0 ", " ")
