"""The events that an agent reported of a job's steps, folded into the steps as they stand now; times. Pure.

An event of a kind or version that is not known is passed over: a newer agent may tell more than is shown here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job."""

    name: str
    status: str
    """running, success, failure, cancelled, skipped"""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None

    def seconds(self, now: float) -> float | None:
        """How long it took, or has been taking."""
        return span(self.started_at, self.finished_at, now)


def fold(events: Sequence[Mapping[str, Any]]) -> tuple[StepView, ...]:
    """The steps in the order they were first heard of."""
    steps: dict[str, StepView] = {}
    for event in events:
        path = str(event.get("path") or event.get("name") or "")
        name = str(event.get("name") or path).removeprefix("step_")
        at = moment(event.get("time"))
        if event.get("event") == "started":
            steps[path] = StepView(name=name, status="running", started_at=at)
        elif event.get("event") == "finished":
            steps[path] = StepView(
                name=name,
                status=str(event.get("status") or "success"),
                started_at=moment(event.get("started_at")),
                finished_at=moment(event.get("finished_at")) or at,
                exit_code=event.get("exit_code"),
            )
    return tuple(steps.values())


def moment(stamp: str | None) -> float | None:
    """A time of the API as seconds since the epoch."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


def span(start: float | None, end: float | None, now: float) -> float | None:
    """The time from a start to its end, or until now."""
    return None if start is None else max((now if end is None else end) - start, 0.0)


def duration(seconds: float) -> str:
    """A time as people say it: 0.4s, 12.3s, 2m 03s, 1h 02m."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"
