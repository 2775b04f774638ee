"""How long the cell could hear its runners: time in which it was away does not count against them.

Decided here: what an outage is (the cell did not run, was held up, or had no store), and when a limit is reached though
the cell is away again and again. After an outage silence begins anew, because a runner that could not be heard may wait
before it tries again; a cell that restarts more often than a limit would never reach it like that, so a limit also ends
after so many times its length in which the cell could hear. Pure; `leases` and `stuck` ask,
`remuda.cell.operations.downtime` notes.
"""

import math
from collections.abc import Iterable

import msgspec

TIMES = 3
"""A limit is over at the latest after so many times its length in which the cell could hear."""
IGNORED_SECONDS = 2.0
"""What is shorter is no outage."""


class Outage(msgspec.Struct, frozen=True, array_like=True):
    """From when until when nobody could be heard."""

    began_at: float
    ended_at: float


def latest_end(began_at: float, limit_seconds: float, outages: Iterable[Outage] | None) -> float:
    """When a limit that began then is over, however often the cell was away. `outages` in the order of time; None: not
    known, and then there is no such end."""
    if outages is None:
        return math.inf
    end = began_at + TIMES * limit_seconds
    for outage in outages:
        if outage.ended_at > began_at and outage.began_at < end:
            end += outage.ended_at - max(outage.began_at, began_at)
    return end


def with_outage(outages: tuple[Outage, ...], outage: Outage, *, kept_seconds: float) -> tuple[Outage, ...]:
    """These outages and a further one, without those that are too long ago to count. Those that it overlaps become one
    with it, so an outage that is told again and again while it lasts counts once."""
    if outage.ended_at - outage.began_at < IGNORED_SECONDS:
        return outages
    merged, apart = outage, []
    for each in outages:
        if each.began_at < outage.ended_at and each.ended_at > outage.began_at:
            merged = Outage(min(each.began_at, merged.began_at), max(each.ended_at, merged.ended_at))
        elif each.ended_at >= outage.ended_at - kept_seconds:
            apart.append(each)
    return tuple(sorted((*apart, merged), key=lambda each: each.began_at))
