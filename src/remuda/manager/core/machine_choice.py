"""Which machine of a list gets the next job, and how many jobs the list can hold. Pure.

The least loaded of those that may be used, by the share of its capacity; the first of equals. A machine that may not be
used, or has begun the last job that it may have, keeps the jobs that it has and gets no other.
"""

from collections.abc import Iterable

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A machine, and how things stand there."""

    name: str
    capacity: int | None
    """Jobs at the same time; None: any number."""
    held: int
    is_usable: bool
    """It can be reached, and has room on its disk."""
    uses_left: int | None = None
    """Jobs that it may begin before it is used up; None: any number, or nobody has asked it yet."""

    @property
    def most(self) -> int | None:
        """Jobs that it could have at the same time; None: any number."""
        if not self.is_usable:
            return self.held
        limits = [self.capacity] if self.capacity is not None else []
        limits += [self.held + self.uses_left] if self.uses_left is not None else []
        return max(self.held, min(limits)) if limits else None

    @property
    def has_room(self) -> bool:
        return self.most is None or self.held < self.most


def choose(machines: Iterable[Standing]) -> str | None:
    """The machine for the next job; None when there is room nowhere."""
    fitting = [one for one in machines if one.has_room]
    return min(fitting, key=lambda one: one.held / (one.capacity or 1)).name if fitting else None


def capacity(machines: Iterable[Standing]) -> int | None:
    """Jobs that all of them can hold; None: any number."""
    total = 0
    for one in machines:
        if one.most is None:
            return None
        total += one.most
    return total
