"""Lays out the chart of demand against capacity on the overview: paths for SVG in a box of 1000 by 100 units, which the
page stretches, and the labels beside it. Pure; in its own module because the layout is tested without a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

WIDTH, HEIGHT = 1000, 100
_ROWS = 24
"""At most so many rows in the table with the same numbers."""
_NICE = (1, 2, 5)

Point = Mapping[str, Any]
"""`at`, `running`, `waiting` and `slots` of an interval, as in the API; the numbers are None if they are not known."""


class UsageChart(msgspec.Struct, frozen=True, kw_only=True):
    running: str
    """SVG path of the area of running jobs."""
    demand: str
    """SVG path of the area of running and waiting jobs."""
    slots: str
    """SVG path of the line of slots."""
    top: int
    """The number at the upper edge."""
    lines: tuple[tuple[float, int], ...]
    """Horizontal lines: their height from the top, and their numbers."""
    rows: tuple[Point, ...]
    """Points for the table, newest first; each has the highest values since the row before."""
    hours: int

    @property
    def is_empty(self) -> bool:
        return not self.demand and not self.slots


def draw_chart(points: Sequence[Point], interval_seconds: int) -> UsageChart:
    """Return the chart of points at equal distances, oldest first."""
    known = [point for point in points if point["running"] is not None]
    highest = max((max(point["running"] + point["waiting"], point["slots"]) for point in known), default=0)
    step = _nice_step(highest)
    top = max(-(-highest // step) * step, step)
    return UsageChart(
        running=_area(points, top, lambda point: point["running"]),
        demand=_area(points, top, lambda point: point["running"] + point["waiting"]),
        slots=_line(points, top, lambda point: point["slots"]),
        top=top,
        lines=tuple((round(HEIGHT * (1 - number / top), 2), number) for number in range(0, top + 1, step)),
        rows=tuple(_rows(points)),
        hours=round(len(points) * interval_seconds / 3600),
    )


def _nice_step(highest: int) -> int:
    """Return the distance of the horizontal lines: 1, 2 or 5 times a power of ten, for at most five lines."""
    factor = 1
    while True:
        for nice in _NICE:
            if highest <= 4 * nice * factor:
                return nice * factor
        factor *= 10


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[int, Point]]]:
    """Yield the sequences of known points, each point with its index."""
    run: list[tuple[int, Point]] = []
    for index, point in enumerate(points):
        if point["running"] is not None:
            run.append((index, point))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _steps(run: Sequence[tuple[int, Point]], count: int, top: int, read: Any) -> list[str]:
    """Return the corners of a line of steps, as `x,y` texts."""
    corners = []
    for index, point in run:
        y = round(HEIGHT * (1 - read(point) / top), 2)
        corners += [f"{round(WIDTH * index / count, 1):g},{y:g}", f"{round(WIDTH * (index + 1) / count, 1):g},{y:g}"]
    return corners


def _line(points: Sequence[Point], top: int, read: Any) -> str:
    return " ".join("M" + " L".join(_steps(run, len(points), top, read)) for run in _runs(points))


def _area(points: Sequence[Point], top: int, read: Any) -> str:
    paths = []
    for run in _runs(points):
        corners = _steps(run, len(points), top, read)
        begin, end = corners[0].partition(",")[0], corners[-1].partition(",")[0]
        paths.append(f"M{begin},{HEIGHT} L{' L'.join(corners)} L{end},{HEIGHT} Z")
    return " ".join(paths)


def _rows(points: Sequence[Point]) -> Iterator[Point]:
    size = max(-(-len(points) // _ROWS), 1)
    for end in range(len(points), 0, -size):
        part = points[max(end - size, 0) : end]
        known = [point for point in part if point["running"] is not None]
        numbers = {
            name: max((point[name] for point in known), default=None) for name in ("running", "waiting", "slots")
        }
        yield {"at": part[0]["at"], **numbers}
