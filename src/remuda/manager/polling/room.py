"""Job slots with a queue: pollers wait here, first come, first served, until `core/slots.py` has a free slot.

A server may hold a request open until it has a job (long polling), and the request keeps its slot meanwhile. Invariant:
a request is held only while every other runner that could run a job has an open request, too, or a free slot for one.
`may_hold` checks this when a request begins; if slots become scarce later, the callback given to `hold` ends it."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from remuda.manager.core.slots import Slot, Slots


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    runner: str
    capacity: Callable[[], int | None]
    future: asyncio.Future[Slot]


class Room:
    def __init__(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """`concurrent` limits the jobs of all runners, `limits` those of each runner by its name (0: no limit).
        `places`: the environment of each runner; runners with the same one share its capacity."""
        self.observers: Mapping[str, Callable[[int], None]] = {}
        """By runner: called with the number of slots taken in its environment."""
        self._limits = dict(limits)
        self._slots = Slots(concurrent=concurrent, limits=self._limits, places=places)
        self._waiting: list[_Waiting] = []
        self._requesting: set[Slot] = set()
        self._held: dict[Slot, Callable[[], None]] = {}
        """Slots of requests that the server may hold open, oldest first, with the function that ends the request."""
        self._leaving: dict[str, Slot] = {}
        """Runners that wait for the slot of a request that is being ended."""
        self._capacities: dict[str, Callable[[], int | None]] = {}

    @property
    def free(self) -> int:
        return self._slots.free

    @property
    def requesting(self) -> int:
        return len(self._requesting)

    def is_full(self, runner: str, capacity: int | None) -> bool:
        """True if the runner's `limit` or the `capacity` of its environment (None: no limit) is reached."""
        return self._slots.is_full(runner, capacity)

    def change(self, *, concurrent: int, limits: Mapping[str, int], places: Mapping[str, str] | None = None) -> None:
        """Apply a new configuration. Taken slots stay taken, even above a lowered limit."""
        self._limits = dict(limits)
        self._slots.change(concurrent=concurrent, limits=self._limits, places=places)
        for runner in self.observers:
            self._notify(runner)
        self.serve()

    async def reserve(self, runner: str, capacity: Callable[[], int | None] = lambda: None) -> Slot:
        """Wait for a slot. `capacity` returns how many jobs the runner's environment can run (None: no limit)."""
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
        """Take the slot of a job of an earlier process; if it is already taken, the runner's lowest free one."""
        adopted = self._slots.adopt(slot)
        self._notify(slot.runner)
        return adopted

    def hold(self, slot: Slot, hang_up: Callable[[], None]) -> None:
        """Record that the server may keep this slot's request open until it has a job (long polling). `hang_up` is
        called at most once, when another runner needs the slot; it ends the request, perhaps some time later."""
        if slot in self._requesting:
            self._held[slot] = hang_up
            self._make_way()

    def hand_over(self, slot: Slot) -> None:
        """Record that the slot now belongs to a job and no longer to a request."""
        self._stop_requesting(slot)
        self._make_way()

    def give_back(self, slot: Slot) -> None:
        """Free the slot of a request that ended, unless the slot belongs to a job now."""
        if slot in self._requesting:
            self.release(slot)

    def release(self, slot: Slot) -> None:
        self._stop_requesting(slot)
        self._slots.release(slot)
        self._notify(slot.runner)
        self.serve()

    def may_hold(self, runner: str) -> bool:
        """True if the server may hold a request open: enough slots stay free for other runners without a request."""
        requesting = self._runners_requesting() | {runner}
        without = [other for other in self._limits if other not in requesting and self._could_have_more(other)]
        return self._slots.free >= len(without) and all(
            (free := self._free_in_place(other)) is None
            or free >= sum(self._slots.share_place(runner, other) for runner in without)
            for other in without
        )

    def serve(self) -> None:
        """Give free slots to waiting pollers. Also called every second, because a capacity may have grown."""
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
        """For each runner without a free slot for a request, end a request that is held open for another runner."""
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
        """True if limit and capacity allow the runner one more job, with slots of open requests counted as free."""
        if self._slots.is_full(runner):
            return False
        free = self._free_in_place(runner)
        return free is None or free + sum(self._slots.share_place(slot.runner, runner) for slot in self._requesting) > 0

    def _free_in_place(self, runner: str) -> int | None:
        """Return the free slots in the runner's environment (None: no limit); negative if above its capacity."""
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
