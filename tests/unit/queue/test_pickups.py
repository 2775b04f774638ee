import pytest

from remuda.model.runner import CapabilityKey, Fingerprint
from remuda.queue.pickups import WINDOW_SECONDS, Estimate, PickUps

LINUX = Fingerprint(tags=frozenset({"linux"}))
GPU = Fingerprint(tags=frozenset({"gpu"}))
NEED = CapabilityKey(tags=frozenset({"linux"}))


def test_nothing_is_known_before_the_first_pick_up() -> None:
    assert PickUps().estimate(NEED, 0, 100) is None


def test_jobs_that_never_waited_long_promise_a_short_wait() -> None:
    pick_ups = PickUps()
    for at in (100, 200, 300):
        pick_ups.note(LINUX, at=at, since=at - 2)
    assert pick_ups.estimate(NEED, 0, 310) == Estimate(seconds=2, pick_ups=3)


def test_behind_a_queue_each_job_ahead_counts() -> None:
    pick_ups = PickUps()
    for at in (100, 130, 160, 190):
        pick_ups.note(LINUX, at=at, since=70)
    assert pick_ups.estimate(NEED, 4, 200) == Estimate(seconds=150, pick_ups=4)


def test_only_runners_that_could_take_the_job_count_and_only_lately() -> None:
    pick_ups = PickUps()
    pick_ups.note(GPU, at=100, since=0)
    assert pick_ups.estimate(NEED, 0, 110) is None
    pick_ups.note(LINUX, at=100, since=90)
    assert pick_ups.estimate(NEED, 0, 110) == Estimate(seconds=10, pick_ups=1)
    assert pick_ups.estimate(NEED, 0, 100 + WINDOW_SECONDS) is None


def test_pick_ups_of_different_runners_are_one_stream() -> None:
    pick_ups = PickUps()
    wide = Fingerprint(tags=frozenset({"linux", "gpu"}))
    for number in range(4):
        pick_ups.note(LINUX if number % 2 else wide, at=100 + 10 * number, since=90)
    estimate = pick_ups.estimate(NEED, 1, 140)
    assert estimate is not None
    assert estimate.seconds == pytest.approx(20)


def test_what_is_kept_is_bounded() -> None:
    pick_ups = PickUps()
    for number in range(2000):
        pick_ups.note(LINUX, at=number, since=number)
        pick_ups.note(Fingerprint(tags=frozenset({str(number)})), at=number, since=number)
    assert len(pick_ups._pick_ups) <= 512
    assert len(pick_ups._pick_ups[LINUX]) <= 64


def test_a_queue_that_stands_still_does_not_look_quick() -> None:
    pick_ups = PickUps()
    pick_ups.note(LINUX, at=103, since=100)
    assert pick_ups.estimate(NEED, 0, 203, since=101) == Estimate(seconds=103, pick_ups=1)
    assert pick_ups.estimate(NEED, 1, 203, since=203) == Estimate(seconds=6, pick_ups=1)
