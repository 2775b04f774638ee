"""Requests for instances, from the plan that wants them until their group shows them. Pure.

Decided here: what a request stands for at each moment, and which one an instance that shows up came of. A request is
stored before its group is asked, so it is known after a crash that one may be under way. What an answer did not say,
because the call failed or nobody was there to hear it, the next update says: what that does not show is given up.

Invariant: an instance takes one place of one request, the oldest one of its group; nothing counts twice.
"""

from enum import StrEnum

import msgspec

from remuda.taskscaler.core.values import Request


class Phase(StrEnum):
    """How far a request is. queued -> sending -> sent or doubtful; all end when they are shown, or are given up."""

    QUEUED = "queued"  # stored at most: nobody was asked
    SENDING = "sending"  # the call is under way, or the process died in it
    SENT = "sent"  # accepted
    DOUBTFUL = "doubtful"  # the call failed: what came of it shows in the next update


class PendingRequest(msgspec.Struct, kw_only=True):
    """Some instances that a group was, or will be, asked for."""

    number: int
    group: str
    count: int
    """Asked for; once accepted, what was accepted."""
    asked_at: float
    phase: Phase = Phase.QUEUED
    shown: int = 0
    """Of these, shown already."""
    ended_at: float = 0.0
    """When the call failed."""

    @property
    def missing(self) -> int:
        return max(self.count - self.shown, 0)

    def as_request(self) -> Request:
        """As a plan wants it."""
        is_sent = self.phase is not Phase.QUEUED
        return Request(group=self.group, count=self.missing, asked_at=self.asked_at, is_sent=is_sent)


class PendingRequests:
    """All requests of a fleet, the oldest first."""

    def __init__(self) -> None:
        self.all: dict[int, PendingRequest] = {}
        self.changed: set[int] = set()
        """Numbers of those that are not stored as they are."""
        self._last = 0

    def load(self, asked: PendingRequest, *, is_known: bool = True) -> None:
        """One of an earlier process. One that was not sent will be planned anew, if it is still wanted. What a group
        was asked for that nobody knows any more (`is_known`) is left alone, as its instances are: some may come."""
        self._last = max(self._last, asked.number)
        if asked.phase is Phase.QUEUED:
            self.changed.add(asked.number)
            return
        if not is_known:
            return
        if asked.phase is Phase.SENDING:
            asked.phase = Phase.DOUBTFUL
        self.all[asked.number] = asked

    def add(self, group: str, count: int, now: float) -> PendingRequest:
        self._last += 1
        asked = self.all[self._last] = PendingRequest(number=self._last, group=group, count=count, asked_at=now)
        self.changed.add(asked.number)
        return asked

    def of(self, group: str) -> list[PendingRequest]:
        return [one for one in self.all.values() if one.group == group]

    def next_queued(self, group: str) -> PendingRequest | None:
        return next((one for one in self.of(group) if one.phase is Phase.QUEUED), None)

    def begin(self, asked: PendingRequest) -> None:
        asked.phase = Phase.SENDING
        self.changed.add(asked.number)

    def note_answer(self, asked: PendingRequest, accepted: int) -> None:
        """Some of them may be shown already."""
        asked.count, asked.phase = accepted, Phase.SENT
        self._settle(asked)

    def mark_doubtful(self, asked: PendingRequest, now: float) -> None:
        asked.phase, asked.ended_at = Phase.DOUBTFUL, now
        self._settle(asked)

    def interrupt(self, group: str, now: float) -> None:
        """No call of the group is under way any more, nor will those that were be answered."""
        for one in self.of(group):
            if one.phase is Phase.SENDING:
                self.mark_doubtful(one, now)

    def take_back(self, group: str) -> None:
        """What nobody was asked for yet."""
        for one in self.of(group):
            if one.phase is Phase.QUEUED:
                self._drop(one)

    def take(self, group: str) -> PendingRequest | None:
        """The request that an instance of the group came of, if any; it has one fewer to come."""
        for one in self.of(group):
            if one.phase is not Phase.QUEUED and one.missing:
                one.shown += 1
                self._settle(one)
                return one
        return None

    def give_up_doubtful(self, group: str, began_at: float) -> int:
        """An update that began then has shown all there is: give up what is in doubt since before. How many."""
        given_up = [one for one in self.of(group) if one.phase is Phase.DOUBTFUL and one.ended_at <= began_at]
        for one in given_up:
            self._drop(one)
        return sum(one.missing for one in given_up)

    def forget(self, group: str, asked_at: float, count: int) -> None:
        """As a plan says."""
        for one in self.of(group):
            if one.asked_at == asked_at and count > 0:
                taken = min(one.missing, count)
                count -= taken
                one.count -= taken
                self._settle(one)

    def _settle(self, asked: PendingRequest) -> None:
        """A call that is under way keeps its request, whatever was shown, until it is answered."""
        self.changed.add(asked.number)
        if not asked.missing and asked.phase is not Phase.SENDING:
            self._drop(asked)

    def _drop(self, asked: PendingRequest) -> None:
        self.all.pop(asked.number, None)
        self.changed.add(asked.number)
