"""Whether a provider changes a group by itself: replaces instances, makes more than asked for, takes some away. Pure.

Decided here, from what was seen of a group: instances that vanished though nobody here had them removed, and instances
that came though nobody here had asked. Either alone means little: a host fails, a person helps. One of each close to
each other is a replacement (AWS's AZRebalance, Google's redistribution); if both had come together, the provider made
more than it was asked for and took one back (Azure's overprovisioning). Many that vanish for nothing are somebody
else's doing, too. Said once it is a guess, repeated it is most likely so. `loop.groups` keeps what was seen.

Invariant: what comes late of a request that was given up is no arrival, and what comes back was never gone.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

REMEMBERED_SECONDS = 3600.0
REMEMBERED = 200
"""Sightings: each is held against all others, with every look at a group."""
NEAR_SECONDS = 600.0
"""Between a loss and an arrival that belong together: providers take minutes to replace something."""
TOGETHER_SECONDS = 120.0
"""Between arrivals of one order."""
REPEATED = 2
TAKEN = 3
"""Losses that nothing came for, until somebody else is suspected."""


class Seen(StrEnum):
    """What was seen of an instance."""

    CAME = "came"  # and nobody here had asked
    LOST = "lost"  # and nobody here had it removed
    GIVEN_UP = "given_up"  # a request for one came to nothing; it may still come


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at the provider's."""

    what: Seen
    at: float
    instance: str = ""
    came_at: float = 0.0
    """Of a lost one."""
    was_ready: bool = True
    """Of a lost one: whether it had ever taken jobs; if not, it may have failed to start."""


class Meddling(StrEnum):
    """What a provider does by itself."""

    NONE = "none"
    REPLACED = "replaced"
    OVERPROVISIONED = "overprovisioned"
    TAKEN_AWAY = "taken_away"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be thought of a group."""

    kind: Meddling = Meddling.NONE
    times: int = 0

    @property
    def is_repeated(self) -> bool:
        return self.times >= REPEATED

    @property
    def cause(self) -> str:
        """Why an instance vanished, for those who had a job there; empty if that cannot be said."""
        if self.kind is Meddling.NONE:
            return ""
        # What is only taken away may as well have broken down.
        is_likely = self.is_repeated and self.kind is not Meddling.TAKEN_AWAY
        return f"{'most likely' if is_likely else 'possibly'} {_CAUSES[self.kind]} ({_often(self.times)})"

    @property
    def advice(self) -> str:
        """The cause, and what to do at the provider."""
        return f"instances vanish: {self.cause}; {_FIXES[self.kind]}" if self.kind is not Meddling.NONE else ""


_CAUSES = {
    Meddling.REPLACED: "its provider replaces instances by itself, for others came that nobody here had asked for",
    Meddling.OVERPROVISIONED: "its provider makes more instances than it is asked for, and takes some back",
    Meddling.TAKEN_AWAY: "somebody else takes instances away, and nothing comes for them",
}
_FIXES = {
    Meddling.REPLACED: (
        "switch rebalancing off at the group (AWS: suspend AZRebalance; Google Cloud: redistribution NONE), protect "
        "its instances from scale-in, and leave it to no autoscaler of the provider's own and no other manager"
    ),
    Meddling.OVERPROVISIONED: "switch overprovisioning off at the group (Azure: overprovision = false)",
    Meddling.TAKEN_AWAY: (
        "leave the group to no autoscaler of the provider's own and no other manager, and protect its instances from "
        "scale-in; spot instances go when their provider wants them back"
    ),
}


def drop_old(sightings: Iterable[Sighting], now: float) -> tuple[Sighting, ...]:
    """Those that still count, the last ones if there are many."""
    return tuple(one for one in sightings if now - one.at < REMEMBERED_SECONDS)[-REMEMBERED:]


def judge(sightings: Sequence[Sighting]) -> Verdict:
    """What is to be thought of a group of which this was seen, in the order of time."""
    came, lost = _find_unexplained(sightings)
    times = {Meddling.REPLACED: 0, Meddling.OVERPROVISIONED: 0}
    alone = 0
    for loss in lost:
        near = [one for one in came if abs(one.at - loss.at) <= NEAR_SECONDS]
        together = [one for one in near if abs(one.at - loss.came_at) <= TOGETHER_SECONDS]
        if together:
            times[Meddling.OVERPROVISIONED] += 1
            came.remove(together[0])
        elif near and loss.was_ready:
            times[Meddling.REPLACED] += 1
            came.remove(min(near, key=lambda one: abs(one.at - loss.at)))
        else:
            alone += loss.was_ready
    kind = max(times, key=lambda one: times[one])
    if times[kind]:
        return Verdict(kind=kind, times=times[kind])
    return Verdict(kind=Meddling.TAKEN_AWAY, times=alone) if alone >= TAKEN else Verdict()


def _find_unexplained(sightings: Sequence[Sighting]) -> tuple[list[Sighting], list[Sighting]]:
    """Arrivals and losses that have no other reason."""
    came: list[Sighting] = []
    lost: list[Sighting] = []
    given_up: list[Sighting] = []
    for one in sightings:
        if one.what is Seen.GIVEN_UP:
            given_up.append(one)
        elif one.what is Seen.LOST:
            lost.append(one)
        elif back := [loss for loss in lost if loss.instance == one.instance]:
            lost.remove(back[0])
        elif late := [request for request in given_up if one.at - request.at <= NEAR_SECONDS]:
            given_up.remove(late[0])
        else:
            came.append(one)
    return came, lost


def _often(times: int) -> str:
    return "once within the hour" if times == 1 else f"{times} times within the hour"
