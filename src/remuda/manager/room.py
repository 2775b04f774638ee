"""Room for jobs, to wait for: the shell around `core/slots.py`. Who finds no slot waits in line.

Kept here: which slots are held by a request that is still open, so that servers may hold requests back (long polling)
without keeping another runner from asking: a request is held only while every other runner that could take a job has a
request open too, or a slot left for one. `polling.py` reserves, and gives back or hands over to the job that came.
Environments that make machines hear how many slots of theirs are taken, so that these wait for jobs that may come.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from remuda.manager.core.slots import Slot, Slots


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    runner: str
    capacity: Callable[[], int | None]
    future: asyncio.Future[Slot]


class Room:
    """Slots to wait for, first come, first served."""

    def __init__(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """`limits` has every runner, with 0 for one without a limit of its own; `places` names their environments."""
        self.hearers: Mapping[str, Callable[[int], None]] = {}
        """Those who hear how many slots are taken in a runner's environment, by runner."""
        self._limits = dict(limits)
        self._slots = Slots(concurrent=concurrent, limits=self._limits, places=places)
        self._waiting: list[_Waiting] = []
        self._asking: set[Slot] = set()

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self._slots.free

    @property
    def asking(self) -> int:
        """Slots held by requests for jobs."""
        return len(self._asking)

    def is_full(self, runner: str, capacity: int | None) -> bool:
        """Whether the runner's own limit, or its environment, leaves no room, be there slots or not."""
        return self._slots.is_full(runner, capacity)

    def change(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """The configuration is another one now. Who has a slot keeps it, also above a lowered limit."""
        self._limits = dict(limits)
        self._slots.change(concurrent=concurrent, limits=self._limits, places=places)
        for runner in self.hearers:
            self._tell(runner)
        self.serve()

    async def reserve(self, runner: str, capacity: Callable[[], int | None] = lambda: None) -> Slot:
        """Wait until the runner has room for one more job; `capacity` says how many its environment can have."""
        waiting = _Waiting(runner, capacity, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.serve()
        try:
            return await waiting.future
        except asyncio.CancelledError:
            if waiting.future.done() and not waiting.future.cancelled():
                self.release(waiting.future.result())
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def adopt(self, slot: Slot) -> Slot:
        """A job of an earlier process holds this slot; or the one that is returned, where somebody has it already."""
        adopted = self._slots.adopt(slot)
        self._tell(slot.runner)
        return adopted

    def hand_over(self, slot: Slot) -> None:
        """The slot is a job's now."""
        self._asking.discard(slot)

    def give_back(self, slot: Slot) -> None:
        """A request is over; its slot is free unless a job has it."""
        if slot in self._asking:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        """The slot is free."""
        self._asking.discard(slot)
        self._slots.release(slot)
        self._tell(slot.runner)
        self.serve()

    def may_hold(self, runner: str) -> bool:
        """Whether a slot that this runner reserved may stay so for long without keeping another one from asking."""
        asking = {slot.runner for slot in self._asking} | {runner}
        without = sum(not self._slots.is_full(other) for other in self._limits if other not in asking)
        return self._slots.free >= without

    def serve(self) -> None:
        """Give slots to those in line. To be called when an environment may have more room than before."""
        for waiting in list(self._waiting):
            if waiting.future.cancelled():
                self._waiting.remove(waiting)
            elif (slot := self._slots.reserve(waiting.runner, waiting.capacity())) is not None:
                self._waiting.remove(waiting)
                self._asking.add(slot)
                self._tell(slot.runner)
                waiting.future.set_result(slot)

    def _tell(self, runner: str) -> None:
        if self.hearers and (hear := self.hearers.get(runner)) is not None:
            hear(self._slots.in_place(runner))
