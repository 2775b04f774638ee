"""Which slot each job holds, and that no two jobs of a runner work in the same folder of one machine.

A slot's number names the working directory (`slots.py`). A job that is found through its agent works in the folder of
the number it had; when a newer job has that number by then, the found one is counted with another: it is displaced. On
different machines that does no harm. On the same one the newer job, which has not begun, takes the other number.
Pure; `job_table.py` keeps it, a job asks before its place is prepared.
"""

from collections.abc import Callable

from remuda.manager.core.slots import Slot


class Folders:
    """The slots of jobs, by the jobs' keys."""

    def __init__(self) -> None:
        self._held: dict[str, Slot] = {}
        self._displaced: dict[str, Slot] = {}  # whose folders they are in, where that is not the slot they hold

    def hold(self, key: str, slot: Slot, number: int) -> None:
        """A job holds a slot, and works (or will) in the folder of this number."""
        self._held[key] = slot
        if slot.number != number:
            self._displaced[key] = Slot(slot.runner, number)

    def settle(self, key: str, is_beside: Callable[[str], bool]) -> int:
        """The number whose folder a job that begins shall have; `is_beside`: whether another one is on its machine."""
        self._displaced.pop(key, None)
        while rival := self._rival(key, is_beside):
            self._held[key], self._held[rival] = self._held[rival], self._held[key]
            del self._displaced[rival]
        return self._held[key].number

    def _rival(self, key: str, is_beside: Callable[[str], bool]) -> str:
        held = self._held[key]
        return next((other for other, slot in self._displaced.items() if slot == held and is_beside(other)), "")

    def let_go(self, key: str) -> Slot:
        """A job is over; the slot is to be given back."""
        self._displaced.pop(key, None)
        return self._held.pop(key)
