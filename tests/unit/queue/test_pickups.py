"""Estimates of waiting times from recent pick-ups."""

import pytest

from remuda.model.runner import CapabilityKey, Fingerprint
from remuda.queue.pickups import WINDOW_SECONDS, Estimate, PickUps

LINUX = Fingerprint(tags=frozenset({"linux"}))
GPU = Fingerprint(tags=frozenset({"gpu"}))
NEED = CapabilityKey(tags=frozenset({"linux"}))


def test_no_estimate_before_the_first_pick_up() -> None:
    assert PickUps().estimate(NEED, 0, 100) is None


def test_short_waits_give_a_short_estimate() -> None:
    pick_ups = PickUps()
    for time in (100, 200, 300):
        pick_ups.note(LINUX, at=time, since=time - 2)
    assert pick_ups.estimate(NEED, 0, 310) == Estimate(seconds=2, pick_ups=3)


def test_every_job_ahead_adds_to_the_estimate() -> None:
    pick_ups = PickUps()
    for time in (100, 130, 160, 190):
        pick_ups.note(LINUX, at=time, since=70)
    assert pick_ups.estimate(NEED, 4, 200) == Estimate(seconds=150, pick_ups=4)


def test_only_recent_pick_ups_of_fitting_runners_count() -> None:
    pick_ups = PickUps()
    pick_ups.note(GPU, at=100, since=0)
    assert pick_ups.estimate(NEED, 0, 110) is None
    pick_ups.note(LINUX, at=100, since=90)
    assert pick_ups.estimate(NEED, 0, 110) == Estimate(seconds=10, pick_ups=1)
    assert pick_ups.estimate(NEED, 0, 100 + WINDOW_SECONDS) is None


def test_pick_ups_of_different_runners_count_together() -> None:
    pick_ups = PickUps()
    wide = Fingerprint(tags=frozenset({"linux", "gpu"}))
    for number in range(4):
        pick_ups.note(LINUX if number % 2 else wide, at=100 + 10 * number, since=90)
    estimate = pick_ups.estimate(NEED, 1, 140)
    assert estimate is not None
    assert estimate.seconds == pytest.approx(20)


def test_the_number_of_stored_pick_ups_is_limited() -> None:
    pick_ups = PickUps()
    for number in range(2000):
        pick_ups.note(LINUX, at=number, since=number)
        pick_ups.note(Fingerprint(tags=frozenset({str(number)})), at=number, since=number)
    assert len(pick_ups._pick_ups) <= 512
    assert len(pick_ups._pick_ups[LINUX]) <= 64


def test_a_stalled_queue_has_a_long_estimate() -> None:
    pick_ups = PickUps()
    pick_ups.note(LINUX, at=103, since=100)
    assert pick_ups.estimate(NEED, 0, 203, since=101) == Estimate(seconds=103, pick_ups=1)
    assert pick_ups.estimate(NEED, 1, 203, since=203) == Estimate(seconds=6, pick_ups=1)
