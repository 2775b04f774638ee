"""Converts the step events of an agent to a flat list of a job's steps, with nesting depths and times. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from remuda.lib.clock import parse_time
from remuda.model.step_tree import Step, own_times, tree_of


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    status: str
    """`running`, `success`, `failure`, `cancelled` or `skipped`."""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    path: str = ""
    depth: int = 0
    """The number of steps that enclose it."""
    own_seconds: float | None = None
    """Seconds of all attempts, without the steps that it called; None if that is the same as `seconds`."""

    def seconds(self, now: float) -> float | None:
        return span(self.started_at, self.finished_at, now)


def fold(events: Sequence[Mapping[str, Any]], until: float) -> tuple[StepView, ...]:
    """Convert a job's step events to its steps, each followed by the steps that it called. A step that has not reported
    its end counts as running until `until`."""
    tree = tree_of(events)
    own = {id(entry.step): entry.seconds for entry in own_times(tree, until)}
    steps = []
    for view, step in _walk(tree, None):
        seconds = own.get(id(step), 0.0) + sum(_total_time(earlier, own) for earlier in step.get("attempts", ()))
        is_same = abs(seconds - (view.seconds(until) or 0.0)) < 1e-6
        steps.append(view if is_same else msgspec.structs.replace(view, own_seconds=seconds))
    return tuple(steps)


def views(tree: Sequence[Step]) -> list[StepView]:
    """Flatten a tree: each step is followed by the steps that it called. `own_seconds` is not computed."""
    return [view for view, _ in _walk(tree, None)]


def _walk(steps: Sequence[Step], above: StepView | None) -> Iterator[tuple[StepView, Step]]:
    for step in steps:
        view = StepView(
            name=display_name(step, "" if above is None else above.name),
            status=str(step["status"]),
            started_at=parse_time(step.get("started_at")),
            finished_at=parse_time(step.get("finished_at")),
            exit_code=step.get("exit_code"),
            path=str(step.get("path") or ""),
            depth=0 if above is None else above.depth + 1,
        )
        yield view, step
        yield from _walk(step["steps"], view)


def _total_time(step: Step, own: Mapping[int, float]) -> float:
    return own.get(id(step), 0.0) + sum(_total_time(inner, own) for inner in step["steps"])


def display_name(step: Step, above: str) -> str:
    """Return the name of a step for users. Parts that open, use and close a step's environment, such as a container,
    have names like `+open`; they become `NAME open`, with the name `above` of the step that contains them."""
    name = str(step.get("name") or step.get("path") or "")
    return f"{above} {name[1:]}".strip() if name.startswith("+") else name.removeprefix("step_")


def span(start: float | None, end: float | None, now: float) -> float | None:
    return None if start is None else max((now if end is None else end) - start, 0.0)
