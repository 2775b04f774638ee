"""Outages of the cell: time in which it could not receive calls of its runners does not count against them. After an
outage a silence limit starts anew, because a runner that could not reach the cell may wait before it tries again. A
cell that restarts more often than that would never reach a limit, so a limit also ends after `MAX_FACTOR` times its
length of uptime."""

import math
from collections.abc import Iterable

import msgspec

MAX_FACTOR = 3
"""A limit ends at the latest after this multiple of its length, outages not counted."""
IGNORED_SECONDS = 2.0
"""Shorter gaps are no outage."""


class Outage(msgspec.Struct, frozen=True, array_like=True):
    """A period in which the cell could not receive calls of runners."""

    began_at: float
    ended_at: float


def latest_end(began_at: float, limit_seconds: float, outages: Iterable[Outage] | None) -> float:
    """Return when a limit that started at `began_at` ends at the latest, however often the cell was down. `outages`
    must be sorted; with None (unknown) infinity is returned."""
    if outages is None:
        return math.inf
    end = began_at + MAX_FACTOR * limit_seconds
    for outage in outages:
        if outage.ended_at > began_at and outage.began_at < end:
            end += outage.ended_at - max(outage.began_at, began_at)
    return end


def with_outage(outages: tuple[Outage, ...], outage: Outage, *, kept_seconds: float) -> tuple[Outage, ...]:
    """Add an outage, merge overlapping ones, so that one reported repeatedly counts once, and drop old ones."""
    if outage.ended_at - outage.began_at < IGNORED_SECONDS:
        return outages
    merged, apart = outage, []
    for each in outages:
        if each.began_at < outage.ended_at and each.ended_at > outage.began_at:
            merged = Outage(min(each.began_at, merged.began_at), max(each.ended_at, merged.ended_at))
        elif each.ended_at >= outage.ended_at - kept_seconds:
            apart.append(each)
    return tuple(sorted((*apart, merged), key=lambda each: each.began_at))
