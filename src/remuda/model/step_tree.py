"""Builds the tree of a job's steps from the events that its agent reported, and computes each step's own time. Pure.

The own time of a step excludes the steps that it called; parallel ones share their caller's time, so own times add up
to the times of the top-level steps. Events are not trusted, because newer or foreign agents may send unknown ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.lib.clock import parse_time

DEEPEST = 64
"""Deeper steps are shown at the top level. Agents allow half of this depth."""
_NOT_OF_THE_STEP = frozenset({"version", "seq", "event", "time", "retried", "steps", "attempts"})

Step = dict[str, Any]
"""The fields of the last event of a step; `steps`: the steps that it called; `attempts`: earlier attempts, if it was
retried. A step that runs has the status `running`."""


class _Place:
    """While the tree is built: the latest step with a path (`caller/step`), its fields, and whether it has ended."""

    __slots__ = ("depth", "is_over", "is_retried", "step")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.is_over = self.is_retried = False
        self.step: Step = {"steps": []}

    def next_attempt(self) -> None:
        earlier = dict(self.step)
        before = earlier.pop("attempts", [])
        self.step.clear()
        self.step |= {"steps": [], "attempts": [*before, earlier]}


def tree_of(events: Iterable[Any]) -> list[Step]:
    """The top-level steps in the order of their first events, with the steps that they called in `steps`."""
    top: list[Step] = []
    latest: dict[str, _Place] = {}
    """By path. If two steps have the same path, the later one."""
    for event in events:
        kind = event.get("event") if isinstance(event, Mapping) else None
        if kind not in ("started", "finished"):
            continue
        path = str(event.get("path") or event.get("name") or "")
        place = latest.get(path)
        if place is None or place.is_over:
            above = latest.get(path.rpartition("/")[0])
            if above is not None and above.depth >= DEEPEST:
                above = None
            place = latest[path] = _Place(0 if above is None else above.depth + 1)
            (top if above is None else above.step["steps"]).append(place.step)
        elif place.is_retried and event.get("attempt") != place.step.get("attempt"):
            place.next_attempt()
        fields = {name: value for name, value in event.items() if name not in _NOT_OF_THE_STEP}
        if kind == "started":
            fields |= {"status": "running", "started_at": event.get("time")}
        elif fields.get("finished_at") is None:
            fields["finished_at"] = event.get("time")
        below = {name: place.step.pop(name) for name in ("attempts", "steps") if name in place.step}
        place.step |= {"status": "success"} | fields | below
        place.is_retried = kind == "finished" and event.get("retried") is True
        place.is_over = kind == "finished" and not place.is_retried
    return top


class OwnTime(NamedTuple):
    """Time that one attempt of a step took, without the steps that it called. `above`: the step that called it."""

    step: Step
    above: "OwnTime | None"
    began: float
    seconds: float


def own_times(steps: Sequence[Step], now: float) -> list[OwnTime]:
    """Return each started step's time without the steps that it called. A running step is counted until `now`."""
    return list(_own_times(steps, now, None, 1.0))


def _own_times(steps: Sequence[Step], now: float, above: OwnTime | None, share: float) -> Iterator[OwnTime]:
    for step in attempts(steps):
        began, seconds = _span(step, now)
        below = sum(_span(inner, now)[1] for inner in attempts(step["steps"]))
        own = above
        if began is not None:
            own = OwnTime(step, above, began, max(seconds - below, 0.0) * share)
            yield own
        yield from _own_times(step["steps"], now, own, share * (min(seconds / below, 1.0) if below else 1.0))


def attempts(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps of a list in order, each after its earlier attempts."""
    for step in steps:
        yield from step.get("attempts", ())
        yield step


def _span(step: Step, now: float) -> tuple[float | None, float]:
    began = parse_time(step.get("started_at"))
    ended = now if step.get("status") == "running" else parse_time(step.get("finished_at"))
    return (None, 0.0) if began is None or ended is None else (began, max(ended - began, 0.0))
