"""Limits how fast instances are requested from a group: a token bucket, and back-off after failed creations. The
back-off counts from the last failure and grows with each failure until a creation succeeds."""

import math

from remuda.lib.backoff import Backoff
from remuda.taskscaler.core.values import Bucket, Group, Limits

DEFAULT_RATE = 100.0
AFTER_FAILURE = Backoff(first_seconds=10.0, factor=1.5, ceiling_seconds=1200.0)
_NEARLY = 1e-9
"""Rounding error of sums of fractions of seconds."""


def rate(limits: Limits) -> float:
    """Number of instances that may be requested per second; infinite without a limit."""
    return math.inf if limits.throttle_limit < 0 else limits.throttle_limit or DEFAULT_RATE


def size(limits: Limits) -> float:
    """Number of tokens in a full bucket: at least one, or nothing would ever be created."""
    whole = limits.throttle_burst or limits.max_instances or rate(limits)
    return max(whole, 1.0)


def refill(group: Group, now: float) -> Bucket | None:
    """The group's token bucket at `now`, with the tokens added since `group.bucket.at`; None without a rate limit."""
    if math.isinf(rate(group.limits)):
        return None
    if group.bucket is None:
        return Bucket(tokens=size(group.limits), at=now)
    # A clock that was set back changes nothing.
    grown = group.bucket.tokens + max(now - group.bucket.at, 0.0) * rate(group.limits)
    return Bucket(tokens=min(grown, size(group.limits)), at=now)


def whole_tokens(bucket: Bucket) -> int:
    """How many instances may be requested now: one for each whole token."""
    return max(int(bucket.tokens + _NEARLY), 0)


def next_token_at(bucket: Bucket, limits: Limits) -> float:
    return bucket.at + max(whole_tokens(bucket) + 1 - bucket.tokens, 0.0) / rate(limits)


def backs_off_until(group: Group) -> float | None:
    """Time before which the group gets no requests (it can be past); None without a failure since the last success."""
    return group.failed_at + AFTER_FAILURE.delay(group.failures) if group.failures > 0 else None
