"""Rate limits with token buckets. A bucket holds as many calls as the rate allows in its period; each call takes one
out, and the bucket refills evenly. Every call of the API creates these values; they are tuples because those cost a
tenth of frozen classes."""

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
    """Whether a call is allowed, and the values of the RateLimit headers."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int
    """Seconds until the bucket is full again."""
    retry_after_seconds: int
    """Seconds until the next call is allowed; 0: now."""


def spend(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, Verdict]:
    """Take one call out of a bucket (None: a full one). A refused call takes nothing out."""
    per_second = rate.calls / rate.seconds
    left = float(rate.calls)
    if bucket is not None:
        # A clock that was set back changes nothing.
        left = min(left, bucket.left + max(now - bucket.at, 0.0) * per_second)
    allowed = left >= 1.0
    if allowed:
        left -= 1.0
    verdict = Verdict(
        allowed=allowed,
        limit=rate.calls,
        remaining=int(left),
        reset_seconds=math.ceil((rate.calls - left) / per_second),
        retry_after_seconds=0 if left >= 1.0 else math.ceil((1.0 - left) / per_second),
    )
    return Bucket(left=left, at=now), verdict
