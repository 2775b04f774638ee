"""When a schedule is due next, and what becomes of it when it was due.

Decided here: which cron lines there are, that a schedule runs at most once a minute, and that runs missed while
nobody looked are made up for by one; time zones have `core.time_zones`. The edge calls it when a schedule changes,
`remuda.cell.pipelines.schedules` when one is due, the store when it keeps a pipeline with its schedule.

Local time is the schedule's own. A time that a clock change leaves out comes at the end of the gap, a time that it
brings twice counts once; only lines that count minutes or hours (`*/10 * * * *`) run through both.
"""

from datetime import datetime

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from remuda.cell.core.pipelines.time_zones import time_zone
from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.values import Schedule
from remuda.model.job import PipelineId

MAX_CRON = 255
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class CronError(InvalidError):
    """No cron line."""


class TimezoneError(InvalidError):
    """No time zone."""


def next_time(cron: str, timezone: str, after: float) -> float:
    """The first time after `after` at which such a schedule is due; CronError or TimezoneError say what is wrong."""
    line = NICKNAMES.get(cron.strip().lower(), cron)
    fields = line.split()
    advice = "write minute, hour, day of month, month and day of week, for example '0 4 * * 1-5', or @daily"
    if len(cron) > MAX_CRON or len(fields) != 5:
        seen = f"it has {len(fields)} fields" if len(cron) <= MAX_CRON else f"it has more than {MAX_CRON} characters"
        raise CronError(f"is invalid: {seen}; {advice}")
    zone = time_zone(timezone)
    if zone is None:
        raise TimezoneError("is invalid: give a name of the time zone database, such as UTC or Europe/Berlin")
    try:
        return next(CronSim(" ".join(fields), datetime.fromtimestamp(after, zone))).timestamp()
    except CronSimError as error:
        raise CronError(f"is invalid: {str(error).lower()}; {advice}") from None
    except (StopIteration, OverflowError):
        raise CronError("is invalid: such a day never comes; check day and month") from None


def with_next_time(schedule: Schedule, now: float) -> Schedule:
    """A schedule that was made or changed, with its next time."""
    return replace(schedule, next_run_at=next_time(schedule.cron, schedule.timezone, now))


def with_pipeline(kept: Schedule, ran: Schedule, pipeline_id: PipelineId, *, due_at: float | None = None) -> Schedule:
    """The schedule as it is kept now, after a pipeline for the one that ran was stored.

    Somebody may have given it other times since `ran` was read: then those count. And a run by hand that began before
    a run by the clock must not bring the older time back. A run by the clock says for which time it is (`due_at`):
    ConflictError when that is not when the schedule is due any more, because somebody else has run it.
    """
    if due_at is not None and kept.next_run_at != due_at:
        raise ConflictError(f"schedule {kept.id} is not due any more")
    next_at = kept.next_run_at
    if (kept.cron, kept.timezone) == (ran.cron, ran.timezone) and ran.next_run_at is not None:
        next_at = max(ran.next_run_at, next_at or ran.next_run_at)
    return replace(kept, next_run_at=next_at, last_pipeline_id=pipeline_id, last_error=None)


def without_pipeline(kept: Schedule, due: Schedule, *, next_at: float | None, reason: str) -> Schedule | None:
    """The schedule after a run that started nothing; None when it has moved on meanwhile."""
    if kept.next_run_at != due.next_run_at:
        return None
    return replace(kept, next_run_at=next_at, last_error=reason)
