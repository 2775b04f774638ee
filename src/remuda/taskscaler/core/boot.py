"""Estimates the boot time of a group's instances: from the request for an instance until it is ready.

The estimate is a weighted quantile of the last boot times. An instance that has been starting for longer than the
estimate counts with its age, so a group that became slow is noticed early. `plan` creates instances for jobs that will
be ready within the boot time."""

from collections.abc import Iterable

import msgspec

from remuda.taskscaler.core.values import DEFAULT_BOOT_SECONDS

KEPT = 50
DECAY = 0.9
"""Weight of a boot time relative to the next one."""
QUANTILE = 0.8


class Boots(msgspec.Struct, frozen=True, kw_only=True):
    """Boot times of the last instances of a group in seconds, the latest last."""

    seconds: tuple[float, ...] = ()

    def with_boot(self, seconds: float) -> "Boots":
        return Boots(seconds=(*self.seconds, max(seconds, 0.0))[-KEPT:])


def estimate(boots: Boots, under_way: Iterable[float] = (), *, quantile: float = QUANTILE) -> float:
    """Boot time in seconds that the fraction `quantile` of new instances does not exceed; `DEFAULT_BOOT_SECONDS` if no
    boot time is known. `under_way`: ages in seconds of starting instances; an age above the estimate from measured
    boots (or above the default) counts as a boot time."""
    weighed = [(seconds, DECAY**age) for age, seconds in enumerate(reversed(boots.seconds))]
    learned = _quantile(weighed, quantile) if weighed else DEFAULT_BOOT_SECONDS
    late = [(age, 1.0) for age in under_way if age > learned]
    return _quantile([*weighed, *late], quantile) if late else learned


def _quantile(weighed: list[tuple[float, float]], quantile: float) -> float:
    """The smallest value such that the values up to it have at least the fraction `quantile` of the total weight.
    `weighed`: pairs of value and weight."""
    remaining = quantile * sum(weight for _, weight in weighed)
    for seconds, weight in sorted(weighed):
        remaining -= weight
        if remaining <= 1e-12:
            return seconds
    return max(weighed)[0]
