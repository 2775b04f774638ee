"""How long to wait before trying again: a pure strategy, so that every retry loop in the system decides the same way.

Jitter comes in as a number between 0 and 1; the shell draws it. Full jitter over the upper half keeps a fleet of
clients from returning in step while no client waits less than half of what was meant.
"""

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that grow by a factor up to a ceiling."""

    first_seconds: float = 0.1
    """The wait after the first failure."""
    factor: float = 2.0
    ceiling_seconds: float = 60.0

    def delay(self, failures: int, *, jitter: float = 1.0) -> float:
        """Seconds to wait after that many failures in a row (at least one)."""
        if failures < 1:
            raise ValueError("a delay needs at least one failure")
        if not 0.0 <= jitter <= 1.0:
            raise ValueError("jitter lies between 0 and 1")
        grown = self.first_seconds * self.factor ** min(failures - 1, 64)
        return min(grown, self.ceiling_seconds) * (0.5 + jitter / 2)
