"""Job requests of runners that are held open until a job fits. `wake` makes one of them try to get a job: that of the
runner with the highest priority, and among those the one that has waited longest. A woken request calls `wake` again
when it has taken a job or got none. Invariant: while a job waits and a held request fits it, at least one woken request
is still looking for a job. So waking one request at a time is enough, and no wake-up is lost.

`rematch` ends the wait of all held requests of a runner that has changed: they must be matched anew."""

import asyncio
from collections import OrderedDict
from enum import Enum
from itertools import count
from typing import Any, Protocol

from remuda.lib.clock import Clock
from remuda.model.job import RunnerId
from remuda.model.runner import Fingerprint
from remuda.queue import WaitingJobs


class HangUp(Protocol):
    """An event, like an `asyncio.Event`, that is set when the client of a held request has disconnected."""

    def is_set(self) -> bool: ...
    async def wait(self) -> Any: ...


NO_RUNNER = RunnerId(0)
_REMEMBERED_CHANGES = 10_000


class Wake(Enum):
    """Why a held request does not wait any longer."""

    JOB = "job"  # a waiting job possibly fits the runner
    RUNNER_CHANGED = "runner changed"  # read the runner again
    NOTHING = "nothing"  # time is up, the client is gone, or the cell stops


_Group = tuple[int, Fingerprint]
"""Key of interchangeable polls: the negative priority and the fingerprint of their runners."""


class _Poll:
    __slots__ = ("group", "number", "runner_id", "woken")

    def __init__(self, number: int, group: _Group, runner_id: RunnerId) -> None:
        self.number = number
        self.group = group
        self.runner_id = runner_id
        self.woken: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()


class HeldPolls:
    def __init__(self, waiting: WaitingJobs, clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock
        self._held: dict[_Group, dict[int, _Poll]] = {}
        self._numbers = count()
        self.stopped = False
        self.changes = 0
        """How many changes of runners were noted. A caller of `hold` reads it before it reads the runner."""
        self._last_changes: OrderedDict[RunnerId, int] = OrderedDict()
        """The number of each runner's last change."""
        self._forgotten = 0
        """The number of the last change that is not in `_last_changes` any more."""

    def __len__(self) -> int:
        return sum(len(group) for group in self._held.values())

    async def hold(
        self,
        fingerprint: Fingerprint,
        seconds: float,
        gone: HangUp,
        *,
        runner_id: RunnerId = NO_RUNNER,
        priority: int = 0,
        changes: int | None = None,
    ) -> Wake:
        """Wait, at most `seconds`, until a job possibly fits a runner with this fingerprint (matching properties), or
        the runner changes. `changes`: the value of `self.changes` before the runner was read."""
        if self.stopped or seconds <= 0:
            return Wake.NOTHING
        if changes is not None and self._last_changes.get(runner_id, self._forgotten) > changes:
            return Wake.RUNNER_CHANGED
        poll = _Poll(next(self._numbers), (-priority, fingerprint), runner_id)
        self._held.setdefault(poll.group, {})[poll.number] = poll
        try:
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._end_after(poll, seconds), name=f"poll-{poll.number}-timer")
                leave = group.create_task(self._end_when(poll, gone), name=f"poll-{poll.number}-client")
                woken = await poll.woken
                timer.cancel()
                leave.cancel()
        except BaseException:
            if poll.woken.done() and not poll.woken.cancelled() and poll.woken.result() is Wake.JOB:
                self.wake()
            raise
        finally:
            self._remove(poll)
        return woken

    def wake(self) -> bool:
        """Wake the held request, of those that fit a waiting job, with the highest priority; False if none fits."""
        while len(self._waiting) and not self.stopped:
            poll = self._first_that_fits()
            if poll is None:
                return False
            if self._end(poll, Wake.JOB):
                return True
        return False

    def _first_that_fits(self) -> _Poll | None:
        now = self._clock.now()
        best: _Poll | None = None
        for (_, fingerprint), polls in self._held.items():
            first = next(iter(polls.values()))
            # The comparison is cheaper than the search for a job, so it comes first.
            is_before = best is None or (first.group[0], first.number) < (best.group[0], best.number)
            if is_before and self._waiting.choose(fingerprint, now) is not None:
                best = first
        return best

    def stop(self) -> None:
        """Let all held requests return at once, without giving them a job, and hold no new ones."""
        self.stopped = True
        for poll in self._list_polls():
            self._end(poll, Wake.NOTHING)

    def rematch(self, runner_id: RunnerId) -> None:
        """Let the held requests of a runner that was changed or removed return, so that it is read again."""
        self.changes += 1
        self._last_changes[runner_id] = self.changes
        self._last_changes.move_to_end(runner_id)
        if len(self._last_changes) > _REMEMBERED_CHANGES:
            self._forgotten = self._last_changes.popitem(last=False)[1]
        for poll in self._list_polls():
            if poll.runner_id == runner_id:
                self._end(poll, Wake.RUNNER_CHANGED)

    def rematch_all(self) -> None:
        """Like `rematch` for all runners: some may have changed unnoticed."""
        self.changes += 1
        self._forgotten = self.changes
        self._last_changes.clear()
        for poll in self._list_polls():
            self._end(poll, Wake.RUNNER_CHANGED)

    def _list_polls(self) -> list[_Poll]:
        return [poll for group in self._held.values() for poll in group.values()]

    def _end(self, poll: _Poll, woken: Wake) -> bool:
        """End the wait of a request with the result `woken`. Returns False if it had ended or was cancelled before."""
        self._remove(poll)
        if poll.woken.done():
            return False
        poll.woken.set_result(woken)
        return True

    def _remove(self, poll: _Poll) -> None:
        polls = self._held.get(poll.group)
        if polls and polls.pop(poll.number, None) and not polls:
            del self._held[poll.group]

    async def _end_after(self, poll: _Poll, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._end(poll, Wake.NOTHING)

    async def _end_when(self, poll: _Poll, gone: HangUp) -> None:
        await gone.wait()
        self._end(poll, Wake.NOTHING)
