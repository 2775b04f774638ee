"""Computes how many requests for jobs a runner may have open: few when idle, more while jobs come. Pure, without I/O.

This is gitlab-runner's rule (FF_USE_ADAPTIVE_REQUEST_CONCURRENCY, on by default): start with one; a tenth more for
every job, and at least one more; a tenth less for every empty answer; never above `request_concurrency`. Every open
request has a slot, so an idle runner takes only one slot from the others. `poller.py` is the caller.
"""

import msgspec

GROWTH = 1.1
SHRINKAGE = 0.9


class RequestLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests for jobs one runner may have open at the same time."""

    hard: int
    """`request_concurrency`."""
    adaptive: float = 1.0
    is_adaptive: bool = True

    @property
    def used(self) -> int:
        """Number of requests that may be open now: the adaptive limit, or `hard` if that is switched off."""
        return int(self.adaptive) if self.is_adaptive else self.hard

    def after(self, status: int | None) -> "RequestLimit":
        """Return the limit after an answer with this HTTP status. Only a job (201) or an empty answer (204) changes
        it; `status` is None without an answer."""
        match status:
            case 201:
                adaptive = min(float(self.hard), max(self.adaptive * GROWTH, self.adaptive + 1))
            case 204:
                adaptive = max(1.0, self.adaptive * SHRINKAGE)
            case _:
                return self
        return msgspec.structs.replace(self, adaptive=adaptive)
