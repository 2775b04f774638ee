"""Assigns slots to jobs so that no two jobs of a runner use the same folder on one machine. Pure code without I/O.

A recovered job works in the folder of its former slot number. If a newer job has that slot, the recovered job gets
another one, and is called displaced. On the same machine the two swap slots before the newer one begins.
"""

from collections.abc import Callable

from remuda.manager.core.slots import Slot


class Folders:
    """The slots of all jobs, by job key, and the folders that displaced jobs use."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._displaced: dict[str, Slot] = {}  # the slot of the folder they use, if it is not their own slot

    def assign(self, key: str, slot: Slot, number: int) -> None:
        """Give a slot to a job; the folder `number` differs from the slot's for a displaced job."""
        self._slots[key] = slot
        if slot.number != number:
            self._displaced[key] = Slot(slot.runner, number)

    def settle(self, key: str, is_beside: Callable[[str], bool]) -> int:
        """Return the folder number for a job that is about to begin; it may swap slots with a displaced one.
        `is_beside` is true for keys of jobs on the same machine."""
        self._displaced.pop(key, None)
        while rival := self._rival(key, is_beside):
            self._slots[key], self._slots[rival] = self._slots[rival], self._slots[key]
            del self._displaced[rival]
        return self._slots[key].number

    def _rival(self, key: str, is_beside: Callable[[str], bool]) -> str:
        own = self._slots[key]
        return next((other for other, slot in self._displaced.items() if slot == own and is_beside(other)), "")

    def let_go(self, key: str) -> Slot:
        self._displaced.pop(key, None)
        return self._slots.pop(key)
