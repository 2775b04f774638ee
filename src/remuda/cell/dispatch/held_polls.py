"""Requests for a job that are held until there is one: cheap futures, grouped by what their runners offer.

Decided here is only who is woken: the runner with the highest priority, and of those the one that waits longest.
Dispatch claims the job; a poll that was woken and took nothing, or another job than the one it was woken for, calls
`wake` when it is through. That is the invariant: as long as a job waits and a held poll fits it, some woken poll is
still on its way. So waking one at a time is enough, and no wake-up is lost.
"""

import asyncio
from itertools import count
from typing import Any, Protocol

from remuda.lib.clock import Clock
from remuda.model.runner import Fingerprint
from remuda.queue import WaitingJobs


class HangUp(Protocol):
    """That the client of a poll has hung up, or will. An event is one."""

    def is_set(self) -> bool: ...
    async def wait(self) -> Any: ...


_Group = tuple[int, Fingerprint]
"""Polls that are alike: minus the priority of their runners, and what these offer."""


class _Poll:
    __slots__ = ("group", "number", "woken")

    def __init__(self, number: int, group: _Group) -> None:
        self.number = number
        self.group = group
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class HeldPolls:
    """The held polls of a cell."""

    def __init__(self, waiting: WaitingJobs, clock: Clock) -> None:
        self._waiting = waiting
        self._clock = clock
        self._held: dict[_Group, dict[int, _Poll]] = {}
        self._numbers = count()
        self.stopped = False

    def __len__(self) -> int:
        return sum(len(group) for group in self._held.values())

    async def hold(self, fingerprint: Fingerprint, seconds: float, gone: HangUp, *, priority: int = 0) -> bool:
        """Wait. True: look for a job again. False: time is up, the client is gone, or all polls end."""
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
        """Wake the first poll that some waiting job fits; False when there is none."""
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
            # Looking for a job costs more than looking who was first; so it is done only for who would be.
            is_before = best is None or (first.group[0], first.number) < (best.group[0], best.number)
            if is_before and self._waiting.choose(fingerprint, now) is not None:
                best = first
        return best

    def stop(self) -> None:
        """End all polls, and those to come."""
        self.stopped = True
        for poll in [poll for group in self._held.values() for poll in group.values()]:
            self._end(poll, woken=False)

    def _end(self, poll: _Poll, *, woken: bool) -> bool:
        """Whether it was still to be ended: a poll that is being cancelled is over already."""
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
