"""Computes how many requests for jobs a runner may have open: few when idle, more while jobs come. Pure code.

This is gitlab-runner's rule (FF_USE_ADAPTIVE_REQUEST_CONCURRENCY): start with one; a tenth more for every job, and at
least one more; a tenth less for every empty answer; never above `request_concurrency`."""

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
        """Number of requests that may be open now: a limit that adapts to answers, or `hard` if not `is_adaptive`."""
        return int(self.adaptive) if self.is_adaptive else self.hard

    def after(self, status: int | None) -> "RequestLimit":
        """Return the limit after an answer (None: no answer). A job (201) raises it, no job (204) lowers it."""
        match status:
            case 201:
                adaptive = min(float(self.hard), max(self.adaptive * GROWTH, self.adaptive + 1))
            case 204:
                adaptive = max(1.0, self.adaptive * SHRINKAGE)
            case _:
                return self
        return msgspec.structs.replace(self, adaptive=adaptive)
