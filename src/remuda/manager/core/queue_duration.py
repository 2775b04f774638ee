"""Checks whether a job waited for its runner longer than the operator accepts (`job_queuing_durations`). Of several
entries that match the time and the project's running jobs, the last one is used. The only I/O is reading time zones."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from remuda.manager.config.values import QueuingDuration


def is_too_long(
    entries: Sequence[QueuingDuration], *, now: datetime, queued_seconds: float, project_jobs_running: str
) -> bool:
    """True if the job waited longer than allowed by the last entry that matches time and running jobs. `now` must have
    a time zone; `project_jobs_running` is the server's text, for example `5` or `+Inf`."""
    for entry in reversed(entries):
        if entry.threshold_seconds and _is_period(entry, now) and _fits(entry, project_jobs_running):
            return queued_seconds > entry.threshold_seconds
    return False


def _fits(entry: QueuingDuration, project_jobs_running: str) -> bool:
    try:
        return re.search(entry.jobs_running_for_project, project_jobs_running) is not None
    except re.error:
        return False


def _is_period(entry: QueuingDuration, now: datetime) -> bool:
    # Imported here because few configurations have such entries.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from cronsim import CronSim, CronSimError

    try:
        local = now.astimezone(ZoneInfo(entry.timezone) if entry.timezone else None)
        minute = local.replace(second=0, microsecond=0, tzinfo=None)
        before = minute - timedelta(minutes=1)
        return any(next(CronSim(period, before)) == minute for period in entry.periods)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, StopIteration):
        return False
