"""How often something may happen: a token bucket.

Pure. A bucket holds as many calls as the rate allows in its period; each call takes one out, and they come back evenly.
So a caller may use a whole period's calls at once, and then as many as come back. Who is counted together is decided
where the buckets are kept (`remuda.cell.http.edge.rate_limits`). Every call of the API makes these values: they are
tuples, which cost a tenth of what frozen classes do.
"""

import math
from typing import NamedTuple

import msgspec


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many calls in a period; 0 calls mean no limit."""

    calls: int
    seconds: float = 60.0


class Bucket(NamedTuple):
    """What is left of the calls, and when that was so."""

    left: float
    at: float


class Verdict(NamedTuple):
    """Whether a call may go on, and what the caller is told."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int
    """When the bucket is full again."""
    retry_after_seconds: int
    """When the next call may go on; 0: at once."""


def spend(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, Verdict]:
    """Take one call out of a bucket; None is a full one. A refused call costs nothing."""
    per_second = rate.calls / rate.seconds
    left = float(rate.calls)
    if bucket is not None:
        # A clock that went back gives nothing and takes nothing.
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
