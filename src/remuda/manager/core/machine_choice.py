"""Chooses the machine for the next job from a list: that with the lowest ratio of jobs to capacity. A machine that is
not usable, or has begun as many jobs as `max_use_count` allows, keeps its jobs and gets no more. Pure code."""

from collections.abc import Iterable

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    name: str
    capacity: int | None
    """Jobs at the same time; None: any number."""
    jobs: int
    is_usable: bool
    """True if the machine is reachable and has enough free disk space."""
    uses_left: int | None = None
    """Jobs that it may still begin; None: any number, or not known yet."""

    @property
    def most(self) -> int | None:
        """The most jobs that the machine may have now, by capacity and use count (None: no limit)."""
        if not self.is_usable:
            return self.jobs
        limits = [self.capacity] if self.capacity is not None else []
        limits += [self.jobs + self.uses_left] if self.uses_left is not None else []
        return max(self.jobs, min(limits)) if limits else None

    @property
    def has_room(self) -> bool:
        return self.most is None or self.jobs < self.most


def choose(machines: Iterable[MachineState]) -> str | None:
    candidates = [machine for machine in machines if machine.has_room]
    return min(candidates, key=lambda machine: machine.jobs / (machine.capacity or 1)).name if candidates else None


def capacity(machines: Iterable[MachineState]) -> int | None:
    """Return how many jobs all machines together can run at the same time; None: any number."""
    total = 0
    for machine in machines:
        if machine.most is None:
            return None
        total += machine.most
    return total
