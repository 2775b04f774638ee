"""The token bucket allows calls up to the rate, for any distribution of the calls."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.access.rate_limits import Bucket, Rate, spend

RATE = Rate(calls=60)


def test_a_burst_uses_the_bucket_and_calls_refill_it_by_time() -> None:
    bucket: Bucket | None = None
    for remaining in range(59, -1, -1):
        bucket, verdict = spend(bucket, RATE, 100.0)
        assert verdict.allowed
        assert verdict.remaining == remaining
    bucket, verdict = spend(bucket, RATE, 100.0)
    assert not verdict.allowed
    assert (verdict.limit, verdict.remaining, verdict.retry_after_seconds, verdict.reset_seconds) == (60, 0, 1, 60)
    bucket, verdict = spend(bucket, RATE, 100.5)
    assert not verdict.allowed
    assert verdict.retry_after_seconds == 1
    _, verdict = spend(bucket, RATE, 101.0)
    assert verdict.allowed


def test_a_clock_set_back_refills_nothing() -> None:
    bucket, _ = spend(None, RATE, 100.0)
    bucket, verdict = spend(bucket, RATE, 50.0)
    assert verdict.remaining == 58


@given(st.integers(1, 50), st.lists(st.floats(0, 30), max_size=200))
def test_never_more_than_the_rate(calls: int, pauses: list[float]) -> None:
    rate = Rate(calls=calls)
    bucket: Bucket | None = None
    now, allowed = 0.0, 0
    for pause in pauses:
        now += pause
        bucket, verdict = spend(bucket, rate, now)
        allowed += verdict.allowed
        assert 0 <= verdict.remaining <= calls
        assert verdict.allowed or verdict.retry_after_seconds >= 1
        assert allowed <= calls + now * calls / rate.seconds + 1e-6


@given(st.integers(1, 50), st.floats(0, 59.99))
def test_a_call_after_retry_after_seconds_is_allowed(calls: int, used_at: float) -> None:
    rate = Rate(calls=calls)
    bucket: Bucket | None = None
    for _ in range(calls):
        bucket, _ = spend(bucket, rate, used_at)
    bucket, refused = spend(bucket, rate, used_at)
    assert not refused.allowed
    _, verdict = spend(bucket, rate, used_at + refused.retry_after_seconds + 1e-9)
    assert verdict.allowed
