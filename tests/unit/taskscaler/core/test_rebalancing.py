"""What a provider does to a group by itself, judged from observed changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.taskscaler.core.rebalancing import (
    NEAR_SECONDS,
    REMEMBERED,
    REMEMBERED_SECONDS,
    Meddling,
    Seen,
    Sighting,
    Verdict,
    drop_old,
    judge,
)


def arrival(time: float, instance: str = "") -> Sighting:
    return Sighting(what=Seen.CAME, at=time, instance=instance or f"new-{time:g}")


def loss(time: float, *, came_at: float = -50_000.0, was_ready: bool = True, instance: str = "") -> Sighting:
    return Sighting(what=Seen.LOST, at=time, instance=instance or f"old-{time:g}", came_at=came_at, was_ready=was_ready)


def given_up_request(time: float) -> Sighting:
    return Sighting(what=Seen.GIVEN_UP, at=time)


@pytest.mark.parametrize(
    ("seen", "kind", "times"),
    [
        ((), Meddling.NONE, 0),
        # A loss, or a machine that somebody added, means nothing by itself.
        ((loss(0), loss(900)), Meddling.NONE, 0),
        ((arrival(0), arrival(1), arrival(2), arrival(3)), Meddling.NONE, 0),
        # AZRebalance makes the new one first; other replacements come after the loss.
        ((arrival(0), loss(60)), Meddling.REPLACED, 1),
        ((loss(0), arrival(200)), Meddling.REPLACED, 1),
        ((arrival(0), loss(60), loss(1000), arrival(1200)), Meddling.REPLACED, 2),
        ((loss(0), arrival(NEAR_SECONDS + 1)), Meddling.NONE, 0),
        # One arrival makes up for one loss.
        ((arrival(0), loss(10), loss(20)), Meddling.REPLACED, 1),
        # Both came together, ready or not: more were made than asked for.
        ((arrival(0), loss(200, came_at=1.0, was_ready=False)), Meddling.OVERPROVISIONED, 1),
        ((arrival(0, "a"), loss(200, came_at=0.0, instance="a")), Meddling.OVERPROVISIONED, 1),
        # An instance that failed to start, and the group's own next attempt.
        ((loss(0, came_at=-300.0, was_ready=False), arrival(30)), Meddling.NONE, 0),
        ((loss(0), loss(10), loss(20)), Meddling.TAKEN_AWAY, 3),
        ((*(loss(time, was_ready=False) for time in range(5)),), Meddling.NONE, 0),
        # The instance was never gone; it was listed late.
        ((loss(0, instance="a"), arrival(100, "a")), Meddling.NONE, 0),
        ((given_up_request(0), loss(5), arrival(100)), Meddling.NONE, 0),
        ((given_up_request(0), loss(5), arrival(100), arrival(101)), Meddling.REPLACED, 1),
    ],
)
def test_verdicts(seen: tuple[Sighting, ...], kind: Meddling, times: int) -> None:
    assert judge(seen) == Verdict(kind=kind, times=times)


def test_once_is_a_guess_and_every_verdict_names_its_remedy() -> None:
    assert judge((arrival(0), loss(60))).cause.startswith("possibly its provider replaces instances by itself")
    again = judge((arrival(0), loss(60), arrival(100), loss(160)))
    assert again.cause.startswith("most likely its provider replaces")
    assert "2 times within the hour" in again.cause
    for word in ("AZRebalance", "scale-in", "autoscaler"):
        assert word in again.advice
    assert "overprovision = false" in Verdict(kind=Meddling.OVERPROVISIONED, times=2).advice
    taken_away = Verdict(kind=Meddling.TAKEN_AWAY, times=3)
    assert "spot" in taken_away.advice
    assert taken_away.cause.startswith("possibly")
    assert Verdict().advice == Verdict().cause == ""


def test_old_sightings_and_those_above_the_limit_are_dropped() -> None:
    assert drop_old((arrival(0), loss(10)), REMEMBERED_SECONDS + 5) == (loss(10),)
    many = [loss(time) for time in range(REMEMBERED + 7)]
    assert drop_old(many, 300.0) == tuple(many[7:])


SIGHTINGS = st.builds(
    Sighting,
    what=st.sampled_from(Seen),
    at=st.floats(0, 4000),
    instance=st.sampled_from("abcdef"),
    came_at=st.floats(-4000, 4000),
    was_ready=st.booleans(),
)


@given(st.lists(SIGHTINGS, max_size=30))
def test_a_verdict_never_counts_more_than_the_losses(seen: list[Sighting]) -> None:
    seen.sort(key=lambda sighting: sighting.at)
    losses = sum(sighting.what is Seen.LOST for sighting in seen)
    verdict = judge(seen)
    assert verdict.times <= losses
    assert (verdict.times > 0) == (verdict.kind is not Meddling.NONE)
    assert judge([sighting for sighting in seen if sighting.what is not Seen.LOST]) == Verdict()
