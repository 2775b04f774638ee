"""Slots: a job may be asked for only by someone who holds room for it.

A slot counts against `concurrent` (all runners) and its runner's `limit`; its number is the lowest free one of that
runner and names the working directory, so no two jobs share one. `polling.py` reserves before it asks; a slot goes
over to the job that came, or is given back.
"""

from collections.abc import Mapping

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """Room for one job of a runner."""

    runner: str
    number: int


class Slots:
    """Which slots are taken."""

    def __init__(self, *, concurrent: int, limits: Mapping[str, int]) -> None:
        self._concurrent = concurrent
        self._limits = limits
        self._taken: set[Slot] = set()

    @property
    def free(self) -> int:
        """How many more of any runner; never negative, though a journal may hold more than a lowered limit allows."""
        return max(0, self._concurrent - len(self._taken))

    def change(self, *, concurrent: int, limits: Mapping[str, int]) -> None:
        """Other limits from now on; who has a slot keeps it."""
        self._concurrent = concurrent
        self._limits = limits

    def is_full(self, runner: str, capacity: int | None = None) -> bool:
        """Whether the runner itself can have no more, be there room for others or not."""
        mine = sum(slot.runner == runner for slot in self._taken)
        limit = self._limits.get(runner, 0)
        return bool(limit and mine >= limit) or (capacity is not None and mine >= capacity)

    def reserve(self, runner: str, capacity: int | None = None) -> Slot | None:
        """The runner's lowest free slot; None when there is no room. `capacity`: that of its environment."""
        if not self.free or self.is_full(runner, capacity):
            return None
        mine = {slot.number for slot in self._taken if slot.runner == runner}
        number = next(number for number in range(len(mine) + 1) if number not in mine)
        slot = Slot(runner, number)
        self._taken.add(slot)
        return slot

    def adopt(self, slot: Slot) -> None:
        """A job of an earlier process holds this slot; room or not, it runs."""
        self._taken.add(slot)

    def release(self, slot: Slot) -> None:
        """Give a slot back; twice is as good as once."""
        self._taken.discard(slot)
