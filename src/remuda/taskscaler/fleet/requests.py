"""Tracks requests for instances, from the plan until the group lists the instances. Pure.

A request is stored before the plugin is called, so after a crash it is known that it may have been sent. If a call
failed or its answer was lost, instances that the next update (the plugin's list) does not have are given up: not
expected any more. Invariant: a new instance is assigned to the oldest request of its group, and to no other."""

from enum import StrEnum

import msgspec

from remuda.taskscaler.core.values import Request


class Phase(StrEnum):
    """Phases of a request: queued -> sending -> sent or doubtful (the call failed or was interrupted, so it is unknown
    whether instances will come). It ends when all its instances are listed or given up (not expected any more)."""

    QUEUED = "queued"  # the plugin was not called yet
    SENDING = "sending"  # the call is in progress, or the process died during it
    SENT = "sent"  # accepted
    DOUBTFUL = "doubtful"  # the call failed or was interrupted: the next update shows its result


class PendingRequest(msgspec.Struct, kw_only=True):
    """A request to a group for a number of instances, before and after it is sent to the plugin."""

    number: int
    group: str
    count: int
    """Requested instances; after the answer, the accepted ones."""
    asked_at: float
    phase: Phase = Phase.QUEUED
    shown: int = 0
    """Instances of this request that the group has listed."""
    ended_at: float = 0.0
    """When the call failed or was interrupted."""

    @property
    def missing(self) -> int:
        return max(self.count - self.shown, 0)

    def as_request(self) -> Request:
        is_sent = self.phase is not Phase.QUEUED
        return Request(group=self.group, count=self.missing, asked_at=self.asked_at, is_sent=is_sent)


class PendingRequests:
    """All requests of a fleet for instances that are not listed yet, whether sent or not; the oldest first."""

    def __init__(self) -> None:
        self.all: dict[int, PendingRequest] = {}
        self.changed: set[int] = set()
        """Numbers of requests whose stored form is out of date."""
        self._last = 0

    def load(self, request: PendingRequest, *, is_known: bool = True) -> None:
        """Restore a request from the state file. One that was not sent is dropped: the next plan makes a new one. If
        its group is not configured any more (`is_known` is false), it is ignored and stays in the state file."""
        self._last = max(self._last, request.number)
        if request.phase is Phase.QUEUED:
            self.changed.add(request.number)
            return
        if not is_known:
            return
        if request.phase is Phase.SENDING:
            request.phase = Phase.DOUBTFUL
        self.all[request.number] = request

    def add(self, group: str, count: int, now: float) -> PendingRequest:
        self._last += 1
        request = self.all[self._last] = PendingRequest(number=self._last, group=group, count=count, asked_at=now)
        self.changed.add(request.number)
        return request

    def of(self, group: str) -> list[PendingRequest]:
        return [request for request in self.all.values() if request.group == group]

    def next_queued(self, group: str) -> PendingRequest | None:
        return next((request for request in self.of(group) if request.phase is Phase.QUEUED), None)

    def begin(self, request: PendingRequest) -> None:
        request.phase = Phase.SENDING
        self.changed.add(request.number)

    def note_answer(self, request: PendingRequest, accepted: int) -> None:
        """Record how many instances the plugin accepted. The group has possibly listed some of them already."""
        request.count, request.phase = accepted, Phase.SENT
        self._settle(request)

    def mark_doubtful(self, request: PendingRequest, now: float) -> None:
        request.phase, request.ended_at = Phase.DOUBTFUL, now
        self._settle(request)

    def interrupt(self, group: str, now: float) -> None:
        """Mark requests whose plugin call was in progress as doubtful: their instances may come, but no answer will."""
        for request in self.of(group):
            if request.phase is Phase.SENDING:
                self.mark_doubtful(request, now)

    def take_back(self, group: str) -> None:
        """Drop the requests of a group that were not sent to its plugin yet."""
        for request in self.of(group):
            if request.phase is Phase.QUEUED:
                self._drop(request)

    def take(self, group: str) -> PendingRequest | None:
        """Assign a new instance to the oldest sent request of its group; return the request, None if there is none."""
        for request in self.of(group):
            if request.phase is not Phase.QUEUED and request.missing:
                request.shown += 1
                self._settle(request)
                return request
        return None

    def give_up_doubtful(self, group: str, began_at: float) -> int:
        """Drop requests whose call failed before the last update began (at `began_at`): that update has listed all
        instances that came of them. Returns the number of instances that are not expected any more."""
        given_up = [
            request for request in self.of(group) if request.phase is Phase.DOUBTFUL and request.ended_at <= began_at
        ]
        for request in given_up:
            self._drop(request)
        return sum(request.missing for request in given_up)

    def forget(self, group: str, asked_at: float, count: int) -> None:
        """Reduce the requests made at `asked_at` by `count` instances that a plan gave up; drop completed requests."""
        for request in self.of(group):
            if request.asked_at == asked_at and count > 0:
                dropped = min(request.missing, count)
                count -= dropped
                request.count -= dropped
                self._settle(request)

    def _settle(self, request: PendingRequest) -> None:
        """Mark a request as changed. Drop it if none of its instances is missing and no call of it is in progress."""
        self.changed.add(request.number)
        if not request.missing and request.phase is not Phase.SENDING:
            self._drop(request)

    def _drop(self, request: PendingRequest) -> None:
        self.all.pop(request.number, None)
        self.changed.add(request.number)
