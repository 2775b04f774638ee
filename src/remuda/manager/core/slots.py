"""Slots: a job may be asked for only by someone who holds room for it.

A slot counts against `concurrent` (all runners), its runner's `limit`, and the capacity of the environment, which
several runners may share. Its number is the lowest free one of that runner and names the working directory, so no two
jobs share one. `polling.py` reserves before it asks; a slot goes over to the job that came, or is given back.

Every call takes the same time, however many slots are taken: thousands may be.
"""

import heapq
from collections import Counter
from collections.abc import Mapping

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """Room for one job of a runner."""

    runner: str
    number: int


class _Numbers:
    """The slot numbers of one runner. Invariant: `_free` has all free numbers below `_end`, and maybe taken ones."""

    __slots__ = ("_end", "_free", "taken")

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self._free: list[int] = []
        self._end = 0

    def lowest(self) -> int:
        while self._free and self._free[0] in self.taken:
            heapq.heappop(self._free)
        number = heapq.heappop(self._free) if self._free else self._end
        self.take(number)
        return number

    def take(self, number: int) -> None:
        for below in range(self._end, number):
            heapq.heappush(self._free, below)
        self._end = max(self._end, number + 1)
        self.taken.add(number)

    def give_back(self, number: int) -> None:
        self.taken.discard(number)
        heapq.heappush(self._free, number)


class Slots:
    """Which slots are taken."""

    def __init__(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """`places` names the environment of each runner; one that is not there has one of its own."""
        self._concurrent = concurrent
        self._limits = limits
        self._places = places or {}
        self._numbers: dict[str, _Numbers] = {}
        self._taken = 0
        self._in_place: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """How many more of any runner; never negative, though a journal may hold more than a lowered limit allows."""
        return max(0, self._concurrent - self._taken)

    @property
    def taken(self) -> int:
        """How many slots are held, by jobs and by requests."""
        return self._taken

    def in_place(self, runner: str) -> int:
        """How many of them in the runner's environment."""
        return self._in_place[self._place(runner)]

    def share_place(self, runner: str, other: str) -> bool:
        """Whether two runners have the same environment."""
        return self._place(runner) == self._place(other)

    def change(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """Other limits from now on; who has a slot keeps it."""
        self._concurrent = concurrent
        self._limits = limits
        self._places = places or {}
        self._in_place.clear()
        for runner, numbers in self._numbers.items():
            self._in_place[self._place(runner)] += len(numbers.taken)

    def is_full(self, runner: str, capacity: int | None = None) -> bool:
        """Whether the runner itself can have no more, be there room for others or not."""
        limit = self._limits.get(runner, 0)
        if limit and runner in self._numbers and len(self._numbers[runner].taken) >= limit:
            return True
        return capacity is not None and self._in_place[self._place(runner)] >= capacity

    def reserve(self, runner: str, capacity: int | None = None) -> Slot | None:
        """The runner's lowest free slot; None when there is no room. `capacity`: that of its environment."""
        if not self.free or self.is_full(runner, capacity):
            return None
        slot = Slot(runner, self._of(runner).lowest())
        self._count(runner, 1)
        return slot

    def adopt(self, slot: Slot) -> Slot:
        """A job of an earlier process holds this slot; room or not, it runs. Another one, if this is taken already."""
        numbers = self._of(slot.runner)
        if slot.number in numbers.taken:
            slot = Slot(slot.runner, numbers.lowest())
        else:
            numbers.take(slot.number)
        self._count(slot.runner, 1)
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; twice is as good as once."""
        numbers = self._of(slot.runner)
        if slot.number in numbers.taken:
            numbers.give_back(slot.number)
            self._count(slot.runner, -1)

    def _of(self, runner: str) -> _Numbers:
        return self._numbers.setdefault(runner, _Numbers())

    def _place(self, runner: str) -> str:
        return self._places.get(runner, runner)

    def _count(self, runner: str, change: int) -> None:
        self._taken += change
        self._in_place[self._place(runner)] += change
