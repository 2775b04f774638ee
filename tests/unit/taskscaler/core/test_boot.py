"""How long instances take, learned."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.taskscaler.core.boot import KEPT, Boots, estimate
from remuda.taskscaler.core.values import DEFAULT_BOOT_SECONDS


def noted(*seconds: float) -> Boots:
    boots = Boots()
    for one in seconds:
        boots = boots.with_boot(one)
    return boots


def test_before_the_first() -> None:
    assert estimate(Boots()) == DEFAULT_BOOT_SECONDS
    assert estimate(Boots(), under_way=[5.0, 400.0]) == 400.0


def test_most_of_the_last_ones() -> None:
    assert estimate(noted(40.0)) == 40.0
    assert estimate(noted(*[30.0] * 9, 300.0)) == 30.0
    assert estimate(noted(*[30.0] * 5, *[300.0] * 5)) == 300.0


def test_later_ones_count_more() -> None:
    slow_then_quick = noted(*[300.0] * 25, *[30.0] * 25)
    assert estimate(slow_then_quick) == 30.0
    assert len(noted(*[1.0] * 200).seconds) == KEPT


def test_one_that_is_late_makes_it_longer() -> None:
    quick = noted(*[30.0] * 3)
    assert estimate(quick, under_way=[10.0, 29.0]) == 30.0
    assert estimate(quick, under_way=[200.0] * 2) == 200.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=80), st.lists(st.floats(0, 1e6), max_size=5))
def test_it_is_one_of_those_seen(seconds: list[float], under_way: list[float]) -> None:
    boots = noted(*seconds)
    assert estimate(boots, under_way) in {*boots.seconds, *under_way}
    assert estimate(boots, under_way) >= estimate(boots) or not under_way
