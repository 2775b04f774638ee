"""Detects that a provider changes a group by itself: replaces, overprovisions or takes away instances.

Input are the losses and arrivals of the last hour that this manager did not cause. One alone means little. A loss and
an arrival close together are a replacement (AWS: AZRebalance; Google: redistribution); if both instances had appeared
together, the provider took one back (Azure: overprovisioning). Many losses without arrivals also have an external
cause. Invariant: a late instance of a request that was given up is no arrival, and one that comes back was not lost."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

REMEMBERED_SECONDS = 3600.0
REMEMBERED = 200
"""Number of sightings that are kept; few, because each is compared with all others at every update of a group."""
NEAR_SECONDS = 600.0
"""Longest time between a loss and its replacement: providers take minutes."""
TOGETHER_SECONDS = 120.0
"""Longest time between the arrivals of two instances that the provider created together."""
REPEATED = 2
TAKEN = 3
"""Number of losses without arrivals from which on an external cause is assumed."""


class Seen(StrEnum):
    """Kinds of events from which `judge` concludes whether the provider changes a group by itself."""

    CAME = "came"  # appeared, and nobody here requested it
    LOST = "lost"  # vanished, and nobody here removed it
    GIVEN_UP = "given_up"  # its request was given up; it may still appear


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One event at the provider: an instance appeared or vanished without a request, or a request was given up."""

    what: Seen
    at: float
    instance: str = ""
    came_at: float = 0.0
    """When a lost instance had appeared."""
    was_ready: bool = True
    """Whether a lost instance ever took jobs; if not, it may have failed to start."""


class Meddling(StrEnum):
    """Kinds of changes that a provider makes to a group without a request."""

    NONE = "none"
    REPLACED = "replaced"
    OVERPROVISIONED = "overprovisioned"
    TAKEN_AWAY = "taken_away"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes the provider of a group probably makes by itself, and how often they were seen."""

    kind: Meddling = Meddling.NONE
    times: int = 0

    @property
    def is_repeated(self) -> bool:
        return self.times >= REPEATED

    @property
    def cause(self) -> str:
        """Why instances vanish, as text for the error of the jobs that ran on them; empty if unknown."""
        if self.kind is Meddling.NONE:
            return ""
        # Instances that are only taken away may have failed as well.
        is_likely = self.is_repeated and self.kind is not Meddling.TAKEN_AWAY
        return f"{'most likely' if is_likely else 'possibly'} {_CAUSES[self.kind]} ({_often(self.times)})"

    @property
    def advice(self) -> str:
        """Text for the operator: why instances vanish, and what to change at the provider. Empty if that is unknown."""
        return f"instances vanish: {self.cause}; {_FIXES[self.kind]}" if self.kind is not Meddling.NONE else ""


_CAUSES = {
    Meddling.REPLACED: "its provider replaces instances by itself: others appeared that this manager had not requested",
    Meddling.OVERPROVISIONED: "its provider creates more instances than requested, and removes some of them",
    Meddling.TAKEN_AWAY: "something other than this manager removes instances, and they are not replaced",
}
_FIXES = {
    Meddling.REPLACED: (
        "switch rebalancing off at the group (AWS: suspend AZRebalance; Google Cloud: redistribution NONE), protect "
        "its instances from scale-in, and let no autoscaler of the provider and no other manager change the group"
    ),
    Meddling.OVERPROVISIONED: "switch overprovisioning off at the group (Azure: overprovision = false)",
    Meddling.TAKEN_AWAY: (
        "let no autoscaler of the provider and no other manager change the group, and protect its instances from "
        "scale-in; spot instances end when their provider takes them back"
    ),
}


def drop_old(sightings: Iterable[Sighting], now: float) -> tuple[Sighting, ...]:
    return tuple(sighting for sighting in sightings if now - sighting.at < REMEMBERED_SECONDS)[-REMEMBERED:]


def judge(sightings: Sequence[Sighting]) -> Verdict:
    """Which changes the provider of a group probably makes by itself. The sightings must be in order of time."""
    came, lost = _find_unexplained(sightings)
    times = {Meddling.REPLACED: 0, Meddling.OVERPROVISIONED: 0}
    alone = 0
    for loss in lost:
        near = [arrival for arrival in came if abs(arrival.at - loss.at) <= NEAR_SECONDS]
        together = [arrival for arrival in near if abs(arrival.at - loss.came_at) <= TOGETHER_SECONDS]
        if together:
            times[Meddling.OVERPROVISIONED] += 1
            came.remove(together[0])
        elif near and loss.was_ready:
            times[Meddling.REPLACED] += 1
            came.remove(min(near, key=lambda arrival: abs(arrival.at - loss.at)))
        else:
            alone += loss.was_ready
    kind = max(times, key=lambda candidate: times[candidate])
    if times[kind]:
        return Verdict(kind=kind, times=times[kind])
    return Verdict(kind=Meddling.TAKEN_AWAY, times=alone) if alone >= TAKEN else Verdict()


def _find_unexplained(sightings: Sequence[Sighting]) -> tuple[list[Sighting], list[Sighting]]:
    """Return arrivals and losses except instances that came back, and late ones of requests that were given up."""
    came: list[Sighting] = []
    lost: list[Sighting] = []
    given_up: list[Sighting] = []
    for sighting in sightings:
        if sighting.what is Seen.GIVEN_UP:
            given_up.append(sighting)
        elif sighting.what is Seen.LOST:
            lost.append(sighting)
        elif back := [loss for loss in lost if loss.instance == sighting.instance]:
            lost.remove(back[0])
        elif late := [request for request in given_up if sighting.at - request.at <= NEAR_SECONDS]:
            given_up.remove(late[0])
        else:
            came.append(sighting)
    return came, lost


def _often(times: int) -> str:
    return "once within the hour" if times == 1 else f"{times} times within the hour"
