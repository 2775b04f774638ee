"""Samples of the usage of a cell: slots, the ring of hours, and points of a chart."""

from remuda.cell.core.waiting.usage import (
    HOLD_SECONDS,
    REPEAT_SECONDS,
    Usage,
    add_sample,
    count_slots,
    name_of_hour,
    read_samples,
    ring_names,
    start_of_interval,
    summarize,
)
from remuda.cell.values import RunnerManager
from remuda.model.job import RunnerId
from remuda.testing.builders import a_runner

NOON = 1_700_000_000 // 86_400 * 86_400 + 43_200


def a_sample(at: int, running: int = 1) -> Usage:
    return Usage(at, running, 0, 4, 1)


def a_manager(system_id: str, capacity: int | None = 4, **more: object) -> RunnerManager:
    fields = {"runner_id": RunnerId(1), "contacted_at": 1000.0, **more}
    return RunnerManager(system_id=system_id, capacity=capacity, **fields)  # type: ignore[arg-type]


def test_slots_of_managers_that_take_jobs() -> None:
    runners = [a_runner(id=RunnerId(1)), a_runner(id=RunnerId(2), paused=True)]
    managers = [
        a_manager("a"),
        a_manager("reports nothing", None),
        a_manager("busy, reports nothing", None),
        a_manager("gone", contacted_at=0),
        a_manager("blocked", problem="no engine"),
        a_manager("of a paused runner", runner_id=RunnerId(2)),
    ]
    assert count_slots(runners, managers, {(1, "busy, reports nothing"): 3}, 1010) == (4 + 1 + 3, 3)


def test_a_process_of_several_runners_counts_once() -> None:
    runners = [a_runner(id=RunnerId(number)) for number in (1, 2)]
    managers = [a_manager("a", runner_id=runner.id, load_running=1, load_free=4) for runner in runners]
    assert count_slots(runners, managers, {}, 1010) == (5, 1)
    full = [a_manager("a", load_running=3, load_free=0)]
    assert count_slots(runners, full, {}, 1010) == (3, 1)


def test_the_first_sample_of_an_interval_counts() -> None:
    stored = add_sample(None, a_sample(NOON + 60))
    assert stored is not None
    assert add_sample(stored, a_sample(NOON + 60, running=9)) is None
    assert add_sample(stored, a_sample(NOON + 45, running=9)) is None
    assert add_sample(stored, a_sample(NOON - 86_400, running=9)) is None


def test_unchanged_values_are_stored_rarely() -> None:
    stored = add_sample(None, a_sample(NOON))
    assert add_sample(stored, a_sample(NOON + 15)) is None
    assert add_sample(stored, a_sample(NOON + 15, running=2)) is not None
    assert add_sample(stored, a_sample(NOON + REPEAT_SECONDS)) is not None


def test_the_ring_is_reused_after_a_day() -> None:
    assert name_of_hour(NOON) == name_of_hour(NOON + 86_400)
    assert {name_of_hour(NOON + hour * 3600) for hour in range(24)} == set(ring_names())
    stored = add_sample(None, a_sample(NOON))
    again = add_sample(stored, a_sample(NOON + 86_400))
    assert again is not None
    assert [sample.at for sample in read_samples([again], since=0)] == [NOON + 86_400]


def test_samples_are_read_in_order_without_old_and_broken_ones() -> None:
    stored = [add_sample(None, a_sample(at)) or "" for at in (NOON + 3600, NOON, NOON - 7200)]
    samples = read_samples([*stored, "", "broken"], since=NOON + HOLD_SECONDS - 1)
    assert [sample.at for sample in samples] == [NOON, NOON + 3600]


def test_points_have_the_highest_values_and_gaps() -> None:
    samples = [a_sample(0, 1), a_sample(30, 5), a_sample(45, 2), a_sample(2000, 3)]
    points = summarize(samples, begin=0, end=2040, step=60)
    assert [point.running for point in points[:3]] == [5, 2, 2]
    assert [point.running for point in points[6:8]] == [2, None]
    assert [point.running for point in points[-2:]] == [None, 3]


def test_intervals_begin_at_multiples() -> None:
    assert start_of_interval(29.9) == 15
