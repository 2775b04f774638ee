"""Computes the run times of pipeline schedules. A schedule runs at most once a minute. If several runs were missed
while the cell was down, there is one run for all of them. Cron expressions use the schedule's time zone. If a clock
change skips a run time, the run is at the end of the skipped period. If a run time occurs twice, there is only one run,
except for expressions that count minutes or hours (`*/10 * * * *`)."""

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
    """The cron expression of a schedule is invalid."""


class TimezoneError(InvalidError):
    """The time zone of a schedule does not exist."""


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return the first run time after `after`. Raises CronError or TimezoneError if `cron` or `timezone` is invalid."""
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
    return replace(schedule, next_run_at=next_time(schedule.cron, schedule.timezone, now))


def with_pipeline(stored: Schedule, ran: Schedule, pipeline_id: PipelineId, *, due_at: float | None = None) -> Schedule:
    """Return the stored schedule after a run that created a pipeline. `ran` is the schedule as read for this run, with
    its next run time, which is not used if it is earlier than the stored one, or if a user has changed the cron
    expression or time zone since. `due_at` is the time for which the run was planned (None: a user started it). Raises
    ConflictError if the stored time is no longer `due_at`: another process ran the schedule, or a user changed it."""
    if due_at is not None and stored.next_run_at != due_at:
        raise ConflictError(f"schedule {stored.id} is not due any more")
    next_at = stored.next_run_at
    if (stored.cron, stored.timezone) == (ran.cron, ran.timezone) and ran.next_run_at is not None:
        next_at = max(ran.next_run_at, next_at or ran.next_run_at)
    return replace(stored, next_run_at=next_at, last_pipeline_id=pipeline_id, last_error=None)


def without_pipeline(stored: Schedule, due: Schedule, *, next_at: float | None, reason: str) -> Schedule | None:
    """Return the schedule after a run that created no pipeline, with its next run time and `reason` as its error.
    Returns None if the stored run time is no longer that of `due`, the schedule as read for this run."""
    if stored.next_run_at != due.next_run_at:
        return None
    return replace(stored, next_run_at=next_at, last_error=reason)
