import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.backoff import Backoff


def test_delays_double_up_to_the_ceiling() -> None:
    backoff = Backoff(first_seconds=1, factor=2, ceiling_seconds=10)
    assert [backoff.delay(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_reduces_a_delay_by_half_at_most() -> None:
    backoff = Backoff(first_seconds=8)
    assert backoff.delay(1, jitter=0) == 4
    assert backoff.delay(1, jitter=0.5) == 6


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_a_delay_is_between_half_the_first_and_the_ceiling(failures: int, jitter: float) -> None:
    backoff = Backoff()
    assert backoff.first_seconds / 2 <= backoff.delay(failures, jitter=jitter) <= backoff.ceiling_seconds


@pytest.mark.parametrize(("failures", "jitter"), [(0, 1.0), (-1, 1.0), (1, 1.1), (1, -0.1)])
def test_arguments_out_of_range_are_refused(failures: int, jitter: float) -> None:
    with pytest.raises(ValueError):
        Backoff().delay(failures, jitter=jitter)
