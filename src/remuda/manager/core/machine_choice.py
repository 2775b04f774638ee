"""Which machine of a list gets the next job, and how many jobs the list can hold. Pure.

The least loaded of those that may be used, by the share of its capacity; the first of equals. A machine that may not be
used keeps the jobs that it has, and gets no other.
"""

from collections.abc import Iterable

from remuda.lib.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A machine, and how things stand there."""

    name: str
    capacity: int | None
    """Jobs at the same time; None: any number."""
    held: int
    is_usable: bool
    """It can be reached, has room on its disk, and has not had all jobs that it may have."""

    @property
    def has_room(self) -> bool:
        return self.is_usable and (self.capacity is None or self.held < self.capacity)


def choose(machines: Iterable[Standing]) -> str | None:
    """The machine for the next job; None when there is room nowhere."""
    fitting = [one for one in machines if one.has_room]
    return min(fitting, key=lambda one: one.held / (one.capacity or 1)).name if fitting else None


def capacity(machines: Iterable[Standing]) -> int | None:
    """Jobs that all of them can hold; None: any number."""
    total = 0
    for one in machines:
        if one.is_usable and one.capacity is None:
            return None
        total += max(one.held, one.capacity or 0) if one.is_usable else one.held
    return total
