"""How long an instance of a group takes from the request until it is ready: learned from the last ones.

Decided here: the estimate is what most of the last instances took (a quantile), later ones counting more; one that is
under way for longer already counts with its age, so that a group that got slow does not look quick until its next
instance is there. Jobs that will be ready within this time are planned for, see `plan`. Whoever sees instances get
ready notes it here, and keeps the value.
"""

from collections.abc import Iterable

import msgspec

from remuda.taskscaler.core.values import DEFAULT_BOOT_SECONDS

KEPT = 50
DECAY = 0.9
"""The weight of an instance beside that of the next one."""
QUANTILE = 0.8


class Boots(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the last instances of a group took, the latest last."""

    seconds: tuple[float, ...] = ()

    def with_boot(self, seconds: float) -> "Boots":
        """With one more."""
        return Boots(seconds=(*self.seconds, max(seconds, 0.0))[-KEPT:])


def estimate(boots: Boots, under_way: Iterable[float] = (), *, quantile: float = QUANTILE) -> float:
    """Seconds until most new instances are ready; `under_way` are the ages of those that are not yet."""
    weighed = [(seconds, DECAY**age) for age, seconds in enumerate(reversed(boots.seconds))]
    known = _quantile(weighed, quantile) if weighed else DEFAULT_BOOT_SECONDS
    late = [(age, 1.0) for age in under_way if age > known]
    return _quantile([*weighed, *late], quantile) if late else known


def _quantile(weighed: list[tuple[float, float]], quantile: float) -> float:
    """The smallest value that has at least this part of the weight at or below it."""
    left = quantile * sum(weight for _, weight in weighed)
    for seconds, weight in sorted(weighed):
        left -= weight
        if left <= 1e-12:
            return seconds
    return max(weighed)[0]
