"""The steps of a job as they stand now, in the order of their tree; times. Pure.

`remuda.model.step_tree` makes the tree of what an agent reported; here it becomes the lines of a view.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from remuda.lib.clock import moment
from remuda.model.step_tree import Step, own_times, tree_of


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job."""

    name: str
    status: str
    """running, success, failure, cancelled, skipped"""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    path: str = ""
    depth: int = 0
    """How many steps are around it."""
    own_seconds: float | None = None
    """What it took for itself, earlier attempts included; None: all the time that it took."""

    def seconds(self, now: float) -> float | None:
        """How long it took, or has been taking."""
        return span(self.started_at, self.finished_at, now)


def fold(events: Sequence[Mapping[str, Any]], until: float) -> tuple[StepView, ...]:
    """All steps, each before those that it called. A step whose end was never told has lasted `until` then."""
    tree = tree_of(events)
    own = {id(one.step): one.seconds for one in own_times(tree, until)}
    found = []
    for view, step in _walk(tree, None):
        took = own.get(id(step), 0.0) + sum(_in_all(earlier, own) for earlier in step.get("attempts", ()))
        has_all = abs(took - (view.seconds(until) or 0.0)) < 1e-6
        found.append(view if has_all else msgspec.structs.replace(view, own_seconds=took))
    return tuple(found)


def views(tree: Sequence[Step]) -> list[StepView]:
    """The same of a tree, without what steps took for themselves."""
    return [view for view, _ in _walk(tree, None)]


def _walk(steps: Sequence[Step], above: StepView | None) -> Iterator[tuple[StepView, Step]]:
    for step in steps:
        view = StepView(
            name=shown_name(step, "" if above is None else above.name),
            status=str(step["status"]),
            started_at=moment(step.get("started_at")),
            finished_at=moment(step.get("finished_at")),
            exit_code=step.get("exit_code"),
            path=str(step.get("path") or ""),
            depth=0 if above is None else above.depth + 1,
        )
        yield view, step
        yield from _walk(step["steps"], view)


def _in_all(step: Step, own: Mapping[int, float]) -> float:
    return own.get(id(step), 0.0) + sum(_in_all(inner, own) for inner in step["steps"])


def shown_name(step: Step, above: str) -> str:
    """A step's name; those that open and close an environment are named after it."""
    name = str(step.get("name") or step.get("path") or "")
    return f"{above} {name[1:]}".strip() if name.startswith("+") else name.removeprefix("step_")


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
