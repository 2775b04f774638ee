"""Counts job slots. A slot is reserved before a job is requested, and is free again when the job is over. Pure code.

A slot counts against `concurrent` (all runners), its runner's `limit`, and the capacity of the environment, which
several runners may share. The slot's number is part of the working directory's name, so no two jobs share a directory.
Calls are fast even if thousands of slots are taken."""

import heapq
from collections import Counter
from collections.abc import Mapping

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """The right of a runner (short token) to run one job; `number` is unique among the runner's taken slots."""

    runner: str
    number: int


class _Numbers:
    """The slot numbers of one runner. Invariant: the heap `_free` contains all free numbers below `_end`, and maybe
    some taken numbers, which `take_lowest` skips."""

    __slots__ = ("_end", "_free", "taken")

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self._free: list[int] = []
        self._end = 0

    def take_lowest(self) -> int:
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
    def __init__(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """`concurrent` limits the jobs of all runners; `limits` has each runner's `limit` (0 or missing: none).
        `places` names each runner's environment; a runner missing there shares its environment with no other."""
        self._concurrent = concurrent
        self._limits = limits
        self._places = places or {}
        self._numbers: dict[str, _Numbers] = {}
        self._taken = 0
        self._in_place: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """Number of free slots under `concurrent`; 0 if more are taken, for example after the limit was lowered."""
        return max(0, self._concurrent - self._taken)

    def in_place(self, runner: str) -> int:
        """Return the number of taken slots in the runner's environment, of all runners that share it."""
        return self._in_place[self._place(runner)]

    def share_place(self, runner: str, other: str) -> bool:
        return self._place(runner) == self._place(other)

    def change(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """Change the limits and environments. Taken slots stay taken, even above the limits."""
        self._concurrent = concurrent
        self._limits = limits
        self._places = places or {}
        self._in_place.clear()
        for runner, numbers in self._numbers.items():
            self._in_place[self._place(runner)] += len(numbers.taken)

    def is_full(self, runner: str, capacity: int | None = None) -> bool:
        """True if the runner's `limit` or the `capacity` of its environment (None: no limit) is reached."""
        limit = self._limits.get(runner, 0)
        if limit and runner in self._numbers and len(self._numbers[runner].taken) >= limit:
            return True
        return capacity is not None and self._in_place[self._place(runner)] >= capacity

    def reserve(self, runner: str, capacity: int | None = None) -> Slot | None:
        """Reserve the runner's lowest free slot; None if a limit or the environment's `capacity` is reached."""
        if not self.free or self.is_full(runner, capacity):
            return None
        slot = Slot(runner, self._of(runner).take_lowest())
        self._count(runner, 1)
        return slot

    def adopt(self, slot: Slot) -> Slot:
        """Take the slot of a job of an earlier process, even above the limits; if it is taken, the lowest free one."""
        numbers = self._of(slot.runner)
        if slot.number in numbers.taken:
            slot = Slot(slot.runner, numbers.take_lowest())
        else:
            numbers.take(slot.number)
        self._count(slot.runner, 1)
        return slot

    def release(self, slot: Slot) -> None:
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
