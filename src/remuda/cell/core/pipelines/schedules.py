"""Next run times of pipeline schedules.

A schedule runs at most once a minute. Runs that were missed while the cell was down are made up for by one run. Cron
lines count in the schedule's time zone. A time that a clock change skips runs at the end of the gap; a time that occurs
twice runs once, except for lines that count minutes or hours (`*/10 * * * *`). The HTTP edge calls this when a schedule
changes, `remuda.cell.pipelines.schedules` when one is due, the store when it stores a pipeline of a schedule.
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
    """The cron line of a schedule is invalid."""


class TimezoneError(InvalidError):
    """The time zone of a schedule does not exist."""


def next_time(cron: str, timezone: str, after: float) -> float:
    """The first due time after `after`. CronError or TimezoneError if the schedule is invalid."""
    line = NICKNAMES.get(cron.strip().lower(), cron)
    fields = line.split()
    advice = "write minute, hour, day of month, month and day of week, for example '0 4 * * 1-5', or @daily"
    if len(cron) > MAX_CRON or len(fields) != 5:
        problem = f"it has {len(fields)} fields" if len(cron) <= MAX_CRON else f"it has more than {MAX_CRON} characters"
        raise CronError(f"is invalid: {problem}; {advice}")
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
    """A new or changed schedule with its next due time."""
    return replace(schedule, next_run_at=next_time(schedule.cron, schedule.timezone, now))


def with_pipeline(stored: Schedule, ran: Schedule, pipeline_id: PipelineId, *, due_at: float | None = None) -> Schedule:
    """The stored schedule after its run `ran` created a pipeline.

    If a user changed its cron line or time zone since `ran` was read, its new due time is kept. A manual run never sets
    an earlier due time. A run by the clock passes the due time that it is for (`due_at`): ConflictError if the schedule
    has another one, because another process has run it.
    """
    if due_at is not None and stored.next_run_at != due_at:
        raise ConflictError(f"schedule {stored.id} is not due any more")
    next_at = stored.next_run_at
    if (stored.cron, stored.timezone) == (ran.cron, ran.timezone) and ran.next_run_at is not None:
        next_at = max(ran.next_run_at, next_at or ran.next_run_at)
    return replace(stored, next_run_at=next_at, last_pipeline_id=pipeline_id, last_error=None)


def without_pipeline(stored: Schedule, due: Schedule, *, next_at: float | None, reason: str) -> Schedule | None:
    """The schedule after a run that created no pipeline; None if its due time changed meanwhile."""
    if stored.next_run_at != due.next_run_at:
        return None
    return replace(stored, next_run_at=next_at, last_error=reason)
