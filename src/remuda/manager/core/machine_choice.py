"""Chooses the machine of a list for the next job, and computes the capacity of the list. Pure.

The least loaded usable machine wins, by the share of its capacity; the first of equals. A machine that is not usable,
or has reached its use count, keeps its jobs and gets no more.
"""

from collections.abc import Iterable

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """The state of one machine."""

    name: str
    capacity: int | None
    """Jobs at the same time; None: any number."""
    jobs: int
    is_usable: bool
    """It is reachable and has free disk space."""
    uses_left: int | None = None
    """Jobs that it may still begin; None: any number, or not known yet."""

    @property
    def most(self) -> int | None:
        """Most jobs at the same time; None: any number."""
        if not self.is_usable:
            return self.jobs
        limits = [self.capacity] if self.capacity is not None else []
        limits += [self.jobs + self.uses_left] if self.uses_left is not None else []
        return max(self.jobs, min(limits)) if limits else None

    @property
    def has_room(self) -> bool:
        return self.most is None or self.jobs < self.most


def choose(machines: Iterable[MachineState]) -> str | None:
    """The name of the machine for the next job; None: no machine has room."""
    candidates = [machine for machine in machines if machine.has_room]
    return min(candidates, key=lambda machine: machine.jobs / (machine.capacity or 1)).name if candidates else None


def capacity(machines: Iterable[MachineState]) -> int | None:
    """Jobs that all of them can have; None: any number."""
    total = 0
    for machine in machines:
        if machine.most is None:
            return None
        total += machine.most
    return total
