"""How fast a group may be asked for instances: a bucket of tokens that fills with time, and back-off after failures.

Decided here: the size and rate of the bucket, and how long nothing is asked for after creations that failed. The wait
counts from the last failure, so that failures with pauses between them slow down, too. `growth` calls it and hands the
bucket back to whoever keeps it.
"""

import math

from remuda.lib.backoff import Backoff
from remuda.taskscaler.core.values import Bucket, Group, Limits

DEFAULT_RATE = 100.0
AFTER_FAILURE = Backoff(first_seconds=10.0, factor=1.5, ceiling_seconds=1200.0)
_NEARLY = 1e-9
"""What sums of parts of seconds may lack of a whole token."""


def rate(limits: Limits) -> float:
    """Tokens a second; infinite without a limit."""
    return math.inf if limits.throttle_limit < 0 else limits.throttle_limit or DEFAULT_RATE


def size(limits: Limits) -> float:
    """Tokens that a full bucket has: at least one, or nothing would ever be created."""
    whole = limits.throttle_burst or limits.max_instances or rate(limits)
    return max(whole, 1.0)


def refill(group: Group, now: float) -> Bucket | None:
    """The bucket as it is now; None when there is no limit."""
    if math.isinf(rate(group.limits)):
        return None
    if group.bucket is None:
        return Bucket(tokens=size(group.limits), at=now)
    # A clock that was set back fills nothing and takes nothing.
    grown = group.bucket.tokens + max(now - group.bucket.at, 0.0) * rate(group.limits)
    return Bucket(tokens=min(grown, size(group.limits)), at=now)


def whole_tokens(bucket: Bucket) -> int:
    """Instances that may be asked for now."""
    return max(int(bucket.tokens + _NEARLY), 0)


def next_token_at(bucket: Bucket, limits: Limits) -> float:
    """When there is one more."""
    return bucket.at + max(whole_tokens(bucket) + 1 - bucket.tokens, 0.0) / rate(limits)


def backs_off_until(group: Group) -> float | None:
    """Before this nothing is asked for; None when the last creation was well."""
    return group.failed_at + AFTER_FAILURE.delay(group.failures) if group.failures > 0 else None
