"""The token bucket and the backoff of a group."""

import pytest

from remuda.taskscaler.core.throttle import backs_off_until, next_token_at, refill, size, whole_tokens
from remuda.taskscaler.core.values import Bucket, Group, Limits


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), 100),
        (Limits(max_instances=7), 7),
        (Limits(throttle_limit=5), 5),
        (Limits(throttle_limit=5, max_instances=7), 7),
        (Limits(throttle_limit=5, throttle_burst=20, max_instances=7), 20),
        (Limits(throttle_limit=0.1), 1),
    ],
)
def test_size(limits: Limits, expected: float) -> None:
    assert size(limits) == expected


def test_the_bucket_fills_with_time_up_to_its_size() -> None:
    group = Group(limits=Limits(throttle_limit=2, throttle_burst=3), bucket=Bucket(tokens=0.0, at=100.0))
    for now, tokens in ((100.0, 0), (100.4, 0), (100.5, 1), (101.0, 2), (200.0, 3), (50.0, 0)):
        bucket = refill(group, now)
        assert bucket is not None
        assert whole_tokens(bucket) == tokens
    assert next_token_at(Bucket(tokens=0.5, at=100.0), group.limits) == 100.25


def test_many_small_parts_make_whole_tokens() -> None:
    group = Group(limits=Limits(throttle_limit=0.1, throttle_burst=5), bucket=Bucket(tokens=0.0, at=0.0))
    for second in range(1, 51):
        group = Group(limits=group.limits, bucket=refill(group, float(second)))
    assert group.bucket is not None
    assert whole_tokens(group.bucket) == 5


def test_no_limit_has_no_bucket() -> None:
    assert refill(Group(limits=Limits(throttle_limit=-1)), 0.0) is None


def test_back_off_grows_and_has_an_end() -> None:
    waits = [backs_off_until(Group(failures=count, failed_at=1000.0)) for count in range(30)]
    assert waits[0] is None
    grown = [wait for wait in waits if wait is not None]
    assert grown[0] == 1010.0
    assert grown == sorted(grown)
    assert grown[-1] == 1000.0 + 1200.0
