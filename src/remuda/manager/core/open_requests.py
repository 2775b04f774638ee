"""The number of requests for jobs that a runner may have open: few when idle, more while jobs come. Pure.

This is gitlab-runner's rule (FF_USE_ADAPTIVE_REQUEST_CONCURRENCY, on by default): start with one; a tenth more for
every job, and at least one more; a tenth less for every empty answer; never above `request_concurrency`. Every open
request has a slot, so an idle runner takes only one slot from the others. `poller.py` is the caller.
"""

import msgspec

GROWTH = 1.1
SHRINKAGE = 0.9


class RequestLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of one runner."""

    hard: int
    """`request_concurrency`."""
    adaptive: float = 1.0
    is_adaptive: bool = True

    @property
    def used(self) -> int:
        """Requests that may be open now."""
        return int(self.adaptive) if self.is_adaptive else self.hard

    def after(self, status: int | None) -> "RequestLimit":
        """The limit after an answer; None or an error status changes nothing."""
        match status:
            case 201:
                adaptive = min(float(self.hard), max(self.adaptive * GROWTH, self.adaptive + 1))
            case 204:
                adaptive = max(1.0, self.adaptive * SHRINKAGE)
            case _:
                return self
        return msgspec.structs.replace(self, adaptive=adaptive)
