"""Computes how many requests for jobs a runner may have open: few when idle, more while jobs come. Pure code.

This is gitlab-runner's rule (FF_USE_ADAPTIVE_REQUEST_CONCURRENCY): start with one; a tenth more for every job, and at
least one more; a tenth less for every empty answer; never above `request_concurrency`.
"""

import msgspec

GROWTH = 1.1
SHRINKAGE = 0.9


class RequestLimit(msgspec.Struct, frozen=True, kw_only=True):
    hard: int
    """`request_concurrency`."""
    adaptive: float = 1.0
    is_adaptive: bool = True

    @property
    def used(self) -> int:
        """Number of requests that may be open now: the adaptive limit, or `hard` if `is_adaptive` is false."""
        return int(self.adaptive) if self.is_adaptive else self.hard

    def after(self, status: int | None) -> "RequestLimit":
        """Return the limit after an answer. Only a job (201) or an empty answer (204) changes it; None: no answer."""
        match status:
            case 201:
                adaptive = min(float(self.hard), max(self.adaptive * GROWTH, self.adaptive + 1))
            case 204:
                adaptive = max(1.0, self.adaptive * SHRINKAGE)
            case _:
                return self
        return msgspec.structs.replace(self, adaptive=adaptive)
