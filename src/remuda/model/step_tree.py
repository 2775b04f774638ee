"""The events that an agent reported of a job's steps, as the tree that they are of, and where its time went. Pure.

Decided here: which event is of which step, what becomes of attempts, and that time counts once. A step that called
others has for its own only what they did not take; steps that ran at the same time share the time of the one around
them. So the own times of a tree sum to the times of its highest steps.

An event of a kind that is not known is passed over, and nothing that an event says is relied upon: a newer agent may
tell more, and not every agent is ours. The cell (`core.times`) and the command line are the callers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.lib.clock import parse_time

DEEPEST = 64
"""Agents allow half of that; what claims to be deeper is told at the top."""
_NOT_OF_THE_STEP = frozenset({"version", "seq", "event", "time", "retried", "steps", "attempts"})

Step = dict[str, Any]
"""What is known of a step: the fields of its last event; `steps`, those that it called; `attempts`, where it was tried
several times: what is known of the earlier ones. One that runs has the status `running`."""


class _Place:
    """A step on its way."""

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
    """The steps of a job's own list, in order."""
    top: list[Step] = []
    latest: dict[str, _Place] = {}
    """A list may call two steps by one name: then it is the later one."""
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
        told = {name: value for name, value in event.items() if name not in _NOT_OF_THE_STEP}
        if kind == "started":
            told |= {"status": "running", "started_at": event.get("time")}
        elif told.get("finished_at") is None:
            told["finished_at"] = event.get("time")
        below = {name: place.step.pop(name) for name in ("attempts", "steps") if name in place.step}
        place.step |= {"status": "success"} | told | below
        place.is_retried = kind == "finished" and event.get("retried") is True
        place.is_over = kind == "finished" and not place.is_retried
    return top


class OwnTime(NamedTuple):
    """What a step, or an earlier attempt at it, took for itself."""

    step: Step
    above: "OwnTime | None"
    began: float
    seconds: float


def own_times(steps: Sequence[Step], now: float) -> list[OwnTime]:
    """Of all steps of a tree that have begun; one that runs takes until now."""
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
    """The steps of a list, and before each the earlier attempts at it."""
    for step in steps:
        yield from step.get("attempts", ())
        yield step


def _span(step: Step, now: float) -> tuple[float | None, float]:
    began = parse_time(step.get("started_at"))
    ended = now if step.get("status") == "running" else parse_time(step.get("finished_at"))
    return (None, 0.0) if began is None or ended is None else (began, max(ended - began, 0.0))
