"""Job requests of runners that are held open until a job fits. `wake` makes one of them try to get a job: that of the
runner with the highest priority, and among those the one that has waited longest. A woken request calls `wake` again
when it has taken a job or got none. Invariant: while a job waits and a held request fits it, at least one woken request
is still looking for a job. So waking one request at a time is enough, and no wake-up is lost."""

import asyncio
from itertools import count
from typing import Any, Protocol

from remuda.lib.clock import Clock
from remuda.model.runner import Fingerprint
from remuda.queue import WaitingJobs


class HangUp(Protocol):
    """An event, like an `asyncio.Event`, that is set when the client of a held request has disconnected."""

    def is_set(self) -> bool: ...
    async def wait(self) -> Any: ...


_Group = tuple[int, Fingerprint]
"""Key of interchangeable polls: the negative priority and the fingerprint of their runners."""


class _Poll:
    __slots__ = ("group", "number", "woken")

    def __init__(self, number: int, group: _Group) -> None:
        self.number = number
        self.group = group
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class HeldPolls:
    def __init__(self, waiting: WaitingJobs, clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock
        self._held: dict[_Group, dict[int, _Poll]] = {}
        self._numbers = count()
        self.stopped = False

    def __len__(self) -> int:
        return sum(len(group) for group in self._held.values())

    async def hold(self, fingerprint: Fingerprint, seconds: float, gone: HangUp, *, priority: int = 0) -> bool:
        """Wait, at most `seconds`, until a job possibly fits a runner with this fingerprint (matching properties). True
        if the caller should try to get a job; False if time is up, the client is gone or the cell stops."""
        if self.stopped or seconds <= 0:
            return False
        poll = _Poll(next(self._numbers), (-priority, fingerprint))
        self._held.setdefault(poll.group, {})[poll.number] = poll
        try:
            async with asyncio.TaskGroup() as group:
                timer = group.create_task(self._end_after(poll, seconds), name=f"poll-{poll.number}-timer")
                leave = group.create_task(self._end_when(poll, gone), name=f"poll-{poll.number}-client")
                woken = await poll.woken
                timer.cancel()
                leave.cancel()
        except BaseException:
            if poll.woken.done() and not poll.woken.cancelled() and poll.woken.result():
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
            if self._end(poll, woken=True):
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
        for poll in [poll for group in self._held.values() for poll in group.values()]:
            self._end(poll, woken=False)

    def _end(self, poll: _Poll, *, woken: bool) -> bool:
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
        self._end(poll, woken=False)

    async def _end_when(self, poll: _Poll, gone: HangUp) -> None:
        await gone.wait()
        self._end(poll, woken=False)
