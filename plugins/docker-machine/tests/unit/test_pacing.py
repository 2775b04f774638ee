from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.backoff import Backoff
from remuda_plugin_docker_machine.pacing import Pace

PAUSES = Backoff(first_seconds=10.0, ceiling_seconds=60.0)


def test_without_failures_only_the_limit_counts() -> None:
    pace = Pace(2, PAUSES)
    assert pace.room(0.0, 100) > 1000
    assert pace.may_begin(0.0)
    pace.under_way = 2
    assert not pace.may_begin(0.0)


def test_failures_make_pauses_that_grow_and_one_success_ends_them() -> None:
    pace = Pace(5, PAUSES)
    assert pace.note_failure("quota", now=100.0, jitter=1.0) == 10.0
    assert (pace.failures, pace.cause) == (1, "quota")
    assert (pace.may_begin(109.0), pace.room(109.0, 0)) == (False, 0)
    assert (pace.may_begin(110.0), pace.room(110.0, 0), pace.room(110.0, 1)) == (True, 1, 0)
    pace.under_way = 1
    assert not pace.may_begin(110.0)
    assert pace.note_failure("quota", now=120.0, jitter=1.0) == 20.0
    pace.note_success()
    assert pace.may_begin(120.0)
    assert pace.failures == 0


def test_machines_that_fail_together_are_one_failure() -> None:
    pace = Pace(5, PAUSES)
    for _ in range(5):
        pace.note_failure("quota", now=100.0, jitter=1.0)
    assert pace.failures == 1
    assert pace.pause(100.0) == 10.0


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=30))
def test_creates_are_never_faster_than_the_pauses(gaps: list[float]) -> None:
    pace, now, starts = Pace(3, PAUSES), 0.0, []
    for gap in gaps:
        now += gap
        if pace.may_begin(now):
            starts.append(now)
            pace.note_failure("no", now=now, jitter=0.0)
    waits = [after - before for before, after in pairwise(starts)]
    assert all(wait >= 5.0 - 1e-9 for wait in waits)
    assert all(wait >= 30.0 - 1e-9 for wait in waits[3:])
