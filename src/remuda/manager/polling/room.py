"""Slots to wait for: an asyncio shell around `core/slots.py`. Pollers that find no free slot wait in line.

It also knows which slots belong to open requests for jobs, so that a server may hold requests (long polling) without
blocking other runners. Invariant: a request is held only while every other runner that could take a job has an open
request, too, or a free slot for one. `may_hold` checks this when a request begins. When a job, a reload or an
environment takes the room away later, a held request is ended (`hold`). `poller.py` reserves slots, and gives them back
or hands them over to a job. Environments with a scaler are told how many of their slots are taken.
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
    """Slots, first come, first served."""

    def __init__(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """`limits` has an entry for every runner, 0 for no limit; `places` names their environments."""
        self.observers: Mapping[str, Callable[[int], None]] = {}
        """By runner: called with the number of slots taken in its environment."""
        self._limits = dict(limits)
        self._slots = Slots(concurrent=concurrent, limits=self._limits, places=places)
        self._waiting: list[_Waiting] = []
        self._requesting: set[Slot] = set()
        self._held: dict[Slot, Callable[[], None]] = {}
        """Those of them whose requests may be held, oldest first, with the function that ends the request."""
        self._leaving: dict[str, Slot] = {}
        """Runners that wait for the slot of a request that is being ended."""
        self._capacities: dict[str, Callable[[], int | None]] = {}

    @property
    def free(self) -> int:
        return self._slots.free

    @property
    def requesting(self) -> int:
        """Number of slots of open requests for jobs."""
        return len(self._requesting)

    def is_full(self, runner: str, capacity: int | None) -> bool:
        """True if the runner's own limit or its environment leaves no room, even if slots are free."""
        return self._slots.is_full(runner, capacity)

    def change(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """Apply a new configuration. Taken slots stay taken, even above a lowered limit."""
        self._limits = dict(limits)
        self._slots.change(concurrent=concurrent, limits=self._limits, places=places)
        for runner in self.observers:
            self._notify(runner)
        self.serve()

    async def reserve(self, runner: str, capacity: Callable[[], int | None] = lambda: None) -> Slot:
        """Wait for a slot of the runner; `capacity` returns how many jobs its environment can have."""
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
        """Take the slot of a job of an earlier process. Returns another slot if this one is taken."""
        adopted = self._slots.adopt(slot)
        self._notify(slot.runner)
        return adopted

    def hold(self, slot: Slot, hang_up: Callable[[], None]) -> None:
        """The server may hold the request of this slot. `hang_up` ends it when another runner needs room.

        It is called at most once, and may take effect later.
        """
        if slot in self._requesting:
            self._held[slot] = hang_up
            self._make_way()

    def hand_over(self, slot: Slot) -> None:
        """The slot now belongs to a job."""
        self._stop_requesting(slot)
        self._make_way()

    def give_back(self, slot: Slot) -> None:
        """A request ended: free its slot unless a job has it."""
        if slot in self._requesting:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        self._stop_requesting(slot)
        self._slots.release(slot)
        self._notify(slot.runner)
        self.serve()

    def may_hold(self, runner: str) -> bool:
        """True if a request of this runner may be held without blocking the requests of another runner."""
        requesting = self._runners_requesting() | {runner}
        without = [other for other in self._limits if other not in requesting and self._could_have_more(other)]
        return self._slots.free >= len(without) and all(
            (free := self._free_in_place(other)) is None
            or free >= sum(self._slots.share_place(runner, other) for runner in without)
            for other in without
        )

    def serve(self) -> None:
        """Give slots to waiting pollers. Called when an environment may have more room than before."""
        for waiting in list(self._waiting):
            if waiting.future.cancelled():
                self._waiting.remove(waiting)
            elif (slot := self._slots.reserve(waiting.runner, waiting.capacity())) is not None:
                self._waiting.remove(waiting)
                self._requesting.add(slot)
                self._notify(slot.runner)
                waiting.future.set_result(slot)
        self._make_way()

    def _make_way(self) -> None:
        """End one held request for each runner that has no open request because no slot is left."""
        if not self._held:
            return
        requesting = self._runners_requesting()
        for runner in dict.fromkeys(waiting.runner for waiting in self._waiting):
            if runner in requesting or runner in self._leaving or not self._could_have_more(runner):
                continue
            free = self._free_in_place(runner)
            is_place_full = free is not None and free <= 0
            if self._slots.free and not is_place_full:
                continue
            for slot in self._held:
                if slot.runner != runner and (not is_place_full or self._slots.share_place(slot.runner, runner)):
                    self._leaving[runner] = slot
                    self._held.pop(slot)()
                    break

    def _runners_requesting(self) -> set[str]:
        return {slot.runner for slot in self._requesting}

    def _could_have_more(self, runner: str) -> bool:
        """True if the runner could take one more job if no request had a slot."""
        if self._slots.is_full(runner):
            return False
        free = self._free_in_place(runner)
        return free is None or free + sum(self._slots.share_place(slot.runner, runner) for slot in self._requesting) > 0

    def _free_in_place(self, runner: str) -> int | None:
        """Free slots of the runner's environment, negative when overcommitted; None: no limit."""
        capacity = self._capacities[runner]() if runner in self._capacities else None
        return None if capacity is None else capacity - self._slots.in_place(runner)

    def _stop_requesting(self, slot: Slot) -> None:
        self._requesting.discard(slot)
        self._held.pop(slot, None)
        if slot in self._leaving.values():
            self._leaving = {runner: other for runner, other in self._leaving.items() if other != slot}

    def _notify(self, runner: str) -> None:
        if self.observers and (observe := self.observers.get(runner)) is not None:
            observe(self._slots.in_place(runner))
