"""Exponential backoff for every retry loop. Pure.

The caller draws the jitter, a number between 0 and 1, so that many clients do not retry at the same moment."""

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    first_seconds: float = 0.1
    """The delay after the first failure."""
    factor: float = 2.0
    ceiling_seconds: float = 60.0

    def delay(self, failures: int, *, jitter: float = 1.0) -> float:
        """Return the seconds to wait after `failures` in a row. `jitter`: random; 0: half the delay, 1: all of it."""
        if failures < 1:
            raise ValueError("a delay needs at least one failure")
        if not 0.0 <= jitter <= 1.0:
            raise ValueError("jitter lies between 0 and 1")
        seconds = self.first_seconds * self.factor ** min(failures - 1, 64)
        return min(seconds, self.ceiling_seconds) * (0.5 + jitter / 2)
