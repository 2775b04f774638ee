"""Estimates of the boot time of an instance, learned from earlier boots."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.taskscaler.core.boot import KEPT, Boots, estimate
from remuda.taskscaler.core.values import DEFAULT_BOOT_SECONDS


def boots_of(*seconds: float) -> Boots:
    boots = Boots()
    for duration in seconds:
        boots = boots.with_boot(duration)
    return boots


def test_the_estimate_before_the_first_boot() -> None:
    assert estimate(Boots()) == DEFAULT_BOOT_SECONDS
    assert estimate(Boots(), under_way=[5.0, 400.0]) == 400.0


def test_the_estimate_covers_most_of_the_recent_boots() -> None:
    assert estimate(boots_of(40.0)) == 40.0
    assert estimate(boots_of(*[30.0] * 9, 300.0)) == 30.0
    assert estimate(boots_of(*[30.0] * 5, *[300.0] * 5)) == 300.0


def test_later_boots_count_more() -> None:
    slow_then_quick = boots_of(*[300.0] * 25, *[30.0] * 25)
    assert estimate(slow_then_quick) == 30.0
    assert len(boots_of(*[1.0] * 200).seconds) == KEPT


def test_a_late_boot_makes_the_estimate_longer() -> None:
    quick = boots_of(*[30.0] * 3)
    assert estimate(quick, under_way=[10.0, 29.0]) == 30.0
    assert estimate(quick, under_way=[200.0] * 2) == 200.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=80), st.lists(st.floats(0, 1e6), max_size=5))
def test_the_estimate_is_one_of_the_observed_durations(seconds: list[float], under_way: list[float]) -> None:
    boots = boots_of(*seconds)
    assert estimate(boots, under_way) in {*boots.seconds, *under_way}
    assert estimate(boots, under_way) >= estimate(boots) or not under_way
