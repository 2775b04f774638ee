"""Room for jobs, to wait for: the shell around `core/slots.py`. Who finds no slot waits in line.

Kept here: which slots are held by a request that is still open, so that servers may hold requests back (long polling)
without keeping another runner from asking. Invariant: a request is held only while every other runner that could take a
job has a request open too, or a slot left for one. `may_hold` says so when a request begins; when a job, a reload or an
environment takes the room away later, a request that is held is ended (`hold`). `polling.py` reserves, and gives back
or hands over to the job that came. Environments that make machines hear how many slots of theirs are taken, so that
these wait for jobs that may come.
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
        self._held: dict[Slot, Callable[[], None]] = {}
        """Of these, those whose requests may be held, the oldest first, with what ends the request."""
        self._leaving: dict[str, Slot] = {}
        """Runners for which a request is being ended, with its slot."""
        self._capacities: dict[str, Callable[[], int | None]] = {}

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
        self._capacities[runner] = capacity
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

    def hold(self, slot: Slot, hang_up: Callable[[], None]) -> None:
        """The request that has this slot may be held by its server; `hang_up` ends it when another runner needs room.

        It is called once at the most, and may let some time pass.
        """
        if slot in self._asking:
            self._held[slot] = hang_up
            self._make_way()

    def hand_over(self, slot: Slot) -> None:
        """The slot is a job's now."""
        self._stop_asking(slot)
        self._make_way()

    def give_back(self, slot: Slot) -> None:
        """A request is over; its slot is free unless a job has it."""
        if slot in self._asking:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        """The slot is free."""
        self._stop_asking(slot)
        self._slots.release(slot)
        self._tell(slot.runner)
        self.serve()

    def may_hold(self, runner: str) -> bool:
        """Whether a slot that this runner reserved may stay so for long without keeping another one from asking."""
        asking = self._runners_asking() | {runner}
        without = [other for other in self._limits if other not in asking and self._could_have_more(other)]
        return self._slots.free >= len(without) and all(
            (left := self._left_in_place(other)) is None
            or left >= sum(self._slots.share_place(one, other) for one in without)
            for other in without
        )

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
        self._make_way()

    def _make_way(self) -> None:
        """End a held request for each runner that has none open and finds no room because of it."""
        if not self._held:
            return
        asking = self._runners_asking()
        for runner in dict.fromkeys(waiting.runner for waiting in self._waiting):
            if runner in asking or runner in self._leaving or not self._could_have_more(runner):
                continue
            left = self._left_in_place(runner)
            is_place_full = left is not None and left <= 0
            if self._slots.free and not is_place_full:
                continue
            for slot in self._held:
                if slot.runner != runner and (not is_place_full or self._slots.share_place(slot.runner, runner)):
                    self._leaving[runner] = slot
                    self._held.pop(slot)()
                    break

    def _runners_asking(self) -> set[str]:
        return {slot.runner for slot in self._asking}

    def _could_have_more(self, runner: str) -> bool:
        """Whether the runner could have one more job if no request had a slot that it needs."""
        if self._slots.is_full(runner):
            return False
        left = self._left_in_place(runner)
        return left is None or left + sum(self._slots.share_place(one.runner, runner) for one in self._asking) > 0

    def _left_in_place(self, runner: str) -> int | None:
        """How many more slots the runner's environment has, below 0 when more are taken; None: it has no limit."""
        capacity = self._capacities[runner]() if runner in self._capacities else None
        return None if capacity is None else capacity - self._slots.in_place(runner)

    def _stop_asking(self, slot: Slot) -> None:
        self._asking.discard(slot)
        self._held.pop(slot, None)
        if slot in self._leaving.values():
            self._leaving = {runner: one for runner, one in self._leaving.items() if one != slot}

    def _tell(self, runner: str) -> None:
        if self.hearers and (hear := self.hearers.get(runner)) is not None:
            hear(self._slots.in_place(runner))
