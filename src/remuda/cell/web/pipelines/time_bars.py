"""Lays out the time of a pipeline's jobs on a common axis: for each job bars from its creation to its end."""

from collections.abc import Sequence

import msgspec

from remuda.cell.web.pipelines.critical_path import end_time, ready_time
from remuda.wire.user_api import JobProgress

MOST_TICKS = 8
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of a job: `blocked` (waits for others), `waiting` (for a runner) or `running`. Places in percent."""

    phase: str
    start: float
    width: float
    seconds: float


class TimeRow(msgspec.Struct, frozen=True, kw_only=True):
    job: JobProgress
    bars: tuple[Bar, ...]


class TimeChart(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[TimeRow, ...]
    ticks: tuple[tuple[float, int], ...]
    """Places on the axis in percent, each with its seconds since the creation of the pipeline."""
    seconds: float
    """The length of the axis."""


def lay_out_times(
    jobs: Sequence[JobProgress], *, created_at: float, finished_at: float | None, now: float
) -> TimeChart:
    """Return the chart of a pipeline: rows ordered by when jobs were ready, then those that never were."""
    ends = [end for job in jobs if (end := end_time(job, now)) is not None]
    length = max([1.0, *(end - created_at for end in ends), (finished_at or created_at) - created_at])

    def order(job: JobProgress) -> tuple[float, int]:
        ready = ready_time(job)
        return (float("inf") if ready is None else ready), job.id

    rows = [TimeRow(job=job, bars=_lay_out_bars(job, created_at, length, now)) for job in sorted(jobs, key=order)]
    return TimeChart(rows=tuple(rows), ticks=tuple(_choose_ticks(length)), seconds=length)


def _lay_out_bars(job: JobProgress, created_at: float, length: float, now: float) -> tuple[Bar, ...]:
    ready, end = ready_time(job), end_time(job, now)
    if ready is None or end is None:
        return ()
    created = created_at if job.created_at is None else max(job.created_at, created_at)
    started = end if job.started_at is None else job.started_at
    phases = (("blocked", created, ready), ("waiting", ready, started), ("running", started, end))
    return tuple(
        Bar(
            phase=phase,
            start=round(max(begin - created_at, 0.0) / length * 100, 3),
            width=round((stop - begin) / length * 100, 3),
            seconds=stop - begin,
        )
        for phase, begin, stop in phases
        if stop > begin
    )


def _choose_ticks(length: float) -> list[tuple[float, int]]:
    step = next((step for step in _STEPS if length / step <= MOST_TICKS), _STEPS[-1])
    while length / step > MOST_TICKS:
        step *= 2
    return [(round(seconds / length * 100, 3), seconds) for seconds in range(0, int(length) + 1, step)]
