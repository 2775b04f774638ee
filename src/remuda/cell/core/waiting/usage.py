"""The usage of a cell over time: samples of running and waiting jobs and of the jobs that managers could run (slots).

Samples are stored in a ring of texts, one for each hour of a day, so the history is bounded and survives a restart.
`operations.usage_recorder` stores them; several processes of a cell agree, because only the first sample of an interval
counts. A sample is valid until the next one, at most for `HOLD_SECONDS`: unchanged values are stored rarely, and after
a longer gap nobody knows what happened. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from remuda.cell.values import Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS

INTERVAL_SECONDS = 15
"""Time between two samples."""
REPEAT_SECONDS = 300
"""Values that have not changed are stored this often."""
HOLD_SECONDS = REPEAT_SECONDS + 2 * INTERVAL_SECONDS
HOURS = 24
"""How many hours the history has."""
_HOUR = 3600


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """A sample. `at` is a multiple of `INTERVAL_SECONDS` since the epoch."""

    at: int
    running: int
    """Jobs that runners have."""
    waiting: int
    """Jobs that wait for a runner."""
    slots: int
    """Jobs that the managers which take jobs could run at a time."""
    managers: int
    """Managers that take jobs."""

    def has_same_values(self, other: "Usage") -> bool:
        return (self.running, self.waiting, self.slots, self.managers) == (
            other.running,
            other.waiting,
            other.slots,
            other.managers,
        )


class _Hour(msgspec.Struct, frozen=True, array_like=True):
    """The samples of one hour, as stored: the number of the hour since the epoch, and its samples, oldest first."""

    number: int
    samples: tuple[Usage, ...] = ()


class UsagePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The usage in one interval of a chart: the highest value of each number. None: not known."""

    at: int
    running: int | None = None
    waiting: int | None = None
    slots: int | None = None


def start_of_interval(now: float) -> int:
    return int(now) // INTERVAL_SECONDS * INTERVAL_SECONDS


def ring_names() -> list[str]:
    """The names of the settings that hold the history."""
    return [f"usage_history {index}" for index in range(HOURS)]


def name_of_hour(at: int) -> str:
    """The name of the setting with the samples of the hour of `at`."""
    return f"usage_history {at // _HOUR % HOURS}"


def count_slots(
    runners: Iterable[Runner], managers: Iterable[RunnerManager], running: Mapping[tuple[int, str], int], now: float
) -> tuple[int, int]:
    """Return how many jobs the managers that take jobs could run at a time, and how many such managers there are.
    `running`: jobs by runner id and system id. A manager that reports no capacity counts with its jobs, at least 1. A
    process that serves several runners is counted once: it has no more slots than it reports as running and free."""
    active = {runner.id for runner in runners if not runner.paused}
    by_process: defaultdict[str, list[RunnerManager]] = defaultdict(list)
    for manager in managers:
        is_present = now - manager.contacted_at < PRESENT_SECONDS
        if is_present and not manager.problem and manager.runner_id in active:
            # Managers without a system id of their own are told apart by their runner.
            name = manager.system_id if manager.load_free is not None else f"{manager.runner_id} {manager.system_id}"
            by_process[name].append(manager)
    return sum(_slots_of_process(rows, running) for rows in by_process.values()), len(by_process)


def _slots_of_process(rows: Sequence[RunnerManager], running: Mapping[tuple[int, str], int]) -> int:
    slots = 0
    for row in rows:
        jobs = running.get((row.runner_id, row.system_id), 0)
        slots += max(jobs, 1) if row.capacity is None else row.capacity
    reported = [
        row.load_running + row.load_free for row in rows if row.load_running is not None and row.load_free is not None
    ]
    return min(slots, max(reported)) if reported else slots


def add_sample(stored: str | None, sample: Usage) -> str | None:
    """Return the text of an hour with a further sample. None if nothing is to be stored: this interval has a sample, or
    the values have not changed and were stored less than `REPEAT_SECONDS` ago."""
    hour = _decode(stored)
    number = sample.at // _HOUR
    if hour is not None and hour.number > number:
        return None
    samples = hour.samples if hour is not None and hour.number == number else ()
    if samples:
        last = samples[-1]
        if last.at >= sample.at or (last.has_same_values(sample) and sample.at - last.at < REPEAT_SECONDS):
            return None
    return msgspec.json.encode(_Hour(number, (*samples, sample))).decode()


def read_samples(stored: Iterable[str], *, since: float) -> list[Usage]:
    """Return the samples of the stored hours that are still valid at `since` or begin later, oldest first."""
    hours = [hour for text in stored if (hour := _decode(text)) is not None]
    return sorted(
        (sample for hour in hours for sample in hour.samples if sample.at + HOLD_SECONDS > since),
        key=lambda sample: sample.at,
    )


def _decode(stored: str | None) -> _Hour | None:
    try:
        return msgspec.json.decode(stored, type=_Hour) if stored else None
    except msgspec.DecodeError:
        return None


def summarize(samples: Sequence[Usage], *, begin: int, end: int, step: int) -> list[UsagePoint]:
    """Return a point for each `step` seconds from `begin` to `end`, with the highest values in it. `samples`: oldest
    first. A point that no valid sample covers has no values."""
    points: list[UsagePoint] = []
    index = 0
    for at in range(begin, end, step):
        while index + 1 < len(samples) and samples[index + 1].at <= at:
            index += 1
        inside = []
        for sample in samples[index:]:
            if sample.at >= at + step:
                break
            if sample.at + HOLD_SECONDS > at:
                inside.append(sample)
        points.append(
            UsagePoint(
                at=at,
                running=max(sample.running for sample in inside),
                waiting=max(sample.waiting for sample in inside),
                slots=max(sample.slots for sample in inside),
            )
            if inside
            else UsagePoint(at=at)
        )
    return points
