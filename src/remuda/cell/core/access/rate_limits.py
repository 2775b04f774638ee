"""Rate limits with token buckets. A bucket holds as many calls as the rate allows in its period; each call takes one
out, and the bucket refills evenly. Every call of the API creates a `Bucket` and a `Verdict`; they are tuples, because
creating one takes a tenth of the time of a frozen class."""

import math
from typing import NamedTuple

import msgspec


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit: the number of calls allowed in a period. 0 calls mean no limit."""

    calls: int
    seconds: float = 60.0


class Bucket(NamedTuple):
    """The state of a token bucket: how many calls were left at the time `at`."""

    left: float
    at: float


class Verdict(NamedTuple):
    """The result for one call: whether it is allowed, and the values of the RateLimit headers of its response."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int
    """Seconds until the bucket is full again."""
    retry_after_seconds: int
    """Seconds until the next call is allowed; 0: now."""


def spend(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, Verdict]:
    """Take one call out of a rate limit (`bucket`: its state, None if new), and return the new state and the result."""
    per_second = rate.calls / rate.seconds
    calls_left = float(rate.calls)
    if bucket is not None:
        # A clock that was set back changes nothing.
        calls_left = min(calls_left, bucket.left + max(now - bucket.at, 0.0) * per_second)
    allowed = calls_left >= 1.0
    if allowed:
        calls_left -= 1.0
    verdict = Verdict(
        allowed=allowed,
        limit=rate.calls,
        remaining=int(calls_left),
        reset_seconds=math.ceil((rate.calls - calls_left) / per_second),
        retry_after_seconds=0 if calls_left >= 1.0 else math.ceil((1.0 - calls_left) / per_second),
    )
    return Bucket(left=calls_left, at=now), verdict
