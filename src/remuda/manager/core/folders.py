"""Assigns slots to jobs so that no two jobs of a runner use the same folder on one machine. Pure code without I/O.

The slot's number is in the folder's name. A job recovered after a restart still uses the folder of its former slot. If
a newer job has that slot, the recovered job (now displaced) gets another; on the same machine they swap before the
newer one begins."""

from collections.abc import Callable

from remuda.manager.core.slots import Slot


class Folders:
    """The slots of all jobs, by job key, and the folders of jobs that use another folder than that of their slot."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._displaced: dict[str, Slot] = {}  # by job key: the slot whose folder the job uses, if it is not its own

    def assign(self, key: str, slot: Slot, number: int) -> None:
        """Give a slot to a job. `number` is the number of the job's folder: that of `slot`, or of a former slot."""
        self._slots[key] = slot
        if slot.number != number:
            self._displaced[key] = Slot(slot.runner, number)

    def settle(self, key: str, is_beside: Callable[[str], bool]) -> int:
        """Return the slot number whose folder a job uses that is about to begin. If another job on the same machine
        (`is_beside` is true for its key) uses that folder, the two swap slots first."""
        self._displaced.pop(key, None)
        while rival := self._rival(key, is_beside):
            self._slots[key], self._slots[rival] = self._slots[rival], self._slots[key]
            del self._displaced[rival]
        return self._slots[key].number

    def _rival(self, key: str, is_beside: Callable[[str], bool]) -> str:
        own = self._slots[key]
        return next((other for other, slot in self._displaced.items() if slot == own and is_beside(other)), "")

    def let_go(self, key: str) -> Slot:
        """Remove a job that is over, and return its slot, which the caller makes free."""
        self._displaced.pop(key, None)
        return self._slots.pop(key)
