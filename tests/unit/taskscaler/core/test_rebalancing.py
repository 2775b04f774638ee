"""What a provider does by itself, judged by what was seen of a group."""

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


def came(at: float, instance: str = "") -> Sighting:
    return Sighting(what=Seen.CAME, at=at, instance=instance or f"new-{at:g}")


def lost(at: float, *, came_at: float = -50_000.0, was_ready: bool = True, instance: str = "") -> Sighting:
    return Sighting(what=Seen.LOST, at=at, instance=instance or f"old-{at:g}", came_at=came_at, was_ready=was_ready)


def given_up(at: float) -> Sighting:
    return Sighting(what=Seen.GIVEN_UP, at=at)


@pytest.mark.parametrize(
    ("seen", "kind", "times"),
    [
        ((), Meddling.NONE, 0),
        # A loss, or a machine that somebody added, means nothing by itself.
        ((lost(0), lost(900)), Meddling.NONE, 0),
        ((came(0), came(1), came(2), came(3)), Meddling.NONE, 0),
        # AZRebalance makes the new one first; other replacements come after the loss.
        ((came(0), lost(60)), Meddling.REPLACED, 1),
        ((lost(0), came(200)), Meddling.REPLACED, 1),
        ((came(0), lost(60), lost(1000), came(1200)), Meddling.REPLACED, 2),
        ((lost(0), came(NEAR_SECONDS + 1)), Meddling.NONE, 0),
        # One arrival makes up for one loss.
        ((came(0), lost(10), lost(20)), Meddling.REPLACED, 1),
        # Both came together, ready or not: more were made than asked for.
        ((came(0), lost(200, came_at=1.0, was_ready=False)), Meddling.OVERPROVISIONED, 1),
        ((came(0, "a"), lost(200, came_at=0.0, instance="a")), Meddling.OVERPROVISIONED, 1),
        # One that failed to start, and the group's own next try.
        ((lost(0, came_at=-300.0, was_ready=False), came(30)), Meddling.NONE, 0),
        ((lost(0), lost(10), lost(20)), Meddling.TAKEN_AWAY, 3),
        ((*(lost(at, was_ready=False) for at in range(5)),), Meddling.NONE, 0),
        # It was never gone; it is late.
        ((lost(0, instance="a"), came(100, "a")), Meddling.NONE, 0),
        ((given_up(0), lost(5), came(100)), Meddling.NONE, 0),
        ((given_up(0), lost(5), came(100), came(101)), Meddling.REPLACED, 1),
    ],
)
def test_verdicts(seen: tuple[Sighting, ...], kind: Meddling, times: int) -> None:
    assert judge(seen) == Verdict(kind=kind, times=times)


def test_once_is_a_guess_and_every_verdict_names_its_remedy() -> None:
    assert judge((came(0), lost(60))).cause.startswith("possibly its provider replaces instances by itself")
    again = judge((came(0), lost(60), came(100), lost(160)))
    assert again.cause.startswith("most likely its provider replaces")
    assert "2 times within the hour" in again.cause
    for word in ("AZRebalance", "scale-in", "autoscaler"):
        assert word in again.advice
    assert "overprovision = false" in Verdict(kind=Meddling.OVERPROVISIONED, times=2).advice
    taken = Verdict(kind=Meddling.TAKEN_AWAY, times=3)
    assert "spot" in taken.advice
    assert taken.cause.startswith("possibly")
    assert Verdict().advice == Verdict().cause == ""


def test_what_is_long_ago_does_not_count_nor_more_than_some() -> None:
    assert drop_old((came(0), lost(10)), REMEMBERED_SECONDS + 5) == (lost(10),)
    many = [lost(at) for at in range(REMEMBERED + 7)]
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
def test_no_more_is_claimed_than_was_lost(seen: list[Sighting]) -> None:
    seen.sort(key=lambda one: one.at)
    losses = sum(one.what is Seen.LOST for one in seen)
    verdict = judge(seen)
    assert verdict.times <= losses
    assert (verdict.times > 0) == (verdict.kind is not Meddling.NONE)
    assert judge([one for one in seen if one.what is not Seen.LOST]) == Verdict()
