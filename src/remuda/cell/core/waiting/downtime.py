"""Outages of the cell: a runner must not exceed a time limit because the cell could not receive its calls. After an
outage the time of a limit starts again, because a runner that could not reach the cell may wait before it tries again.
If the cell restarted again and again, a limit would never be reached; so it also ends when the cell has been up for
`MAX_FACTOR` times the limit."""

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
    """Return when a limit that started at `began_at` ends at the latest: when the cell was up for `MAX_FACTOR` times
    `limit_seconds`. `outages` must be sorted; with None (unknown) infinity is returned."""
    if outages is None:
        return math.inf
    end = began_at + MAX_FACTOR * limit_seconds
    for outage in outages:
        if outage.ended_at > began_at and outage.began_at < end:
            end += outage.ended_at - max(outage.began_at, began_at)
    return end


def with_outage(outages: tuple[Outage, ...], outage: Outage, *, kept_seconds: float) -> tuple[Outage, ...]:
    """Return the outages with one more, if it lasted at least `IGNORED_SECONDS`. Overlapping ones are merged, so that a
    repeated report counts once; those that ended `kept_seconds` before the end of the new one are dropped."""
    if outage.ended_at - outage.began_at < IGNORED_SECONDS:
        return outages
    merged, apart = outage, []
    for earlier in outages:
        if earlier.began_at < outage.ended_at and earlier.ended_at > outage.began_at:
            merged = Outage(min(earlier.began_at, merged.began_at), max(earlier.ended_at, merged.ended_at))
        elif earlier.ended_at >= outage.ended_at - kept_seconds:
            apart.append(earlier)
    return tuple(sorted((*apart, merged), key=lambda earlier: earlier.began_at))
