"""Turns the step results of a job into the rows of its step tree: names, times as bars, and what each step used. Pure.

A module of its own, because results come from runners and are not trusted: every field may be missing or of another
type. The template can rely on these rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.cell.web.formatting import format_duration, format_size
from remuda.lib.clock import parse_time
from remuda.model.step_tree import Step, tree_of

LONGEST_TEXT = 2000
_STATUSES = {"failure": "failed", "cancelled": "canceled"}


class StepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the tree. `status` is a word of job statuses. The bar begins at `offset` and is `width` wide, both in
    percent of the time that the steps of the job took."""

    name: str
    path: str
    status: str
    seconds: float | None
    since: float | None
    """When a running step began."""
    offset: float
    width: float
    exit_code: int | None
    facts: Sequence[tuple[str, str]]
    """What ran and what it used: names and values."""
    error: str
    is_deciding: bool
    """It failed itself, not because of a step that it called."""
    steps: Sequence["StepRow"]
    attempts: Sequence["StepRow"]


def step_rows(events: Sequence[Any], now: float) -> list[StepRow]:
    """The top-level steps of a job, with the steps that they called."""
    tree = tree_of(events)
    times = [time for step in _walk(tree) for time in _times(step, now)]
    begin, end = (min(times), max(times)) if times else (now, now)
    return [_row(step, "", begin, max(end - begin, 0.001), now) for step in tree]


def job_usage(events: Sequence[Any]) -> list[tuple[str, str]]:
    """What the whole job used, as names and values; empty if it was not reported."""
    used = next((event.get("used") for event in reversed(events) if _is(event, "used")), None)
    if not isinstance(used, Mapping):
        return []
    pairs = [
        ("Processor", _processor(used)),
        ("Memory, highest", _size(used, "memory_peak_bytes")),
        ("Disk read", _size(used, "disk_read_bytes")),
        ("Disk written", _size(used, "disk_written_bytes")),
        ("Working directory", _size(used, "work_dir_bytes")),
        ("Network received", _size(used, "network_received_bytes")),
        ("Network sent", _size(used, "network_sent_bytes")),
    ]
    return [(name, value) for name, value in pairs if value]


def _is(event: Any, kind: str) -> bool:
    return isinstance(event, Mapping) and event.get("event") == kind


def _walk(steps: Sequence[Step]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        found += [step, *_walk(step.get("steps", ())), *_walk(step.get("attempts", ()))]
    return found


def _times(step: Step, now: float) -> list[float]:
    began, ended = parse_time(step.get("started_at")), parse_time(step.get("finished_at"))
    if began is None:
        return []
    return [began, max(now if step.get("status") == "running" else (ended or began), began)]


def _row(step: Step, above: str, begin: float, length: float, now: float) -> StepRow:
    name = _name(step, above)
    times = _times(step, now)
    status = _text(step.get("status"))
    seconds = times[1] - times[0] if times else None
    return StepRow(
        name=name,
        path=_text(step.get("path")),
        status=_STATUSES.get(status, status),
        seconds=seconds,
        since=times[0] if times and status == "running" else None,
        offset=round((times[0] - begin) / length * 100, 2) if times else 0.0,
        width=round(max((seconds or 0.0) / length * 100, 0.4), 2) if times else 0.0,
        exit_code=_whole(step.get("exit_code")),
        facts=_facts(step),
        error=_text(step.get("error")),
        is_deciding=status == "failure" and step.get("error_kind") != "step",
        steps=[_row(inner, name, begin, length, now) for inner in step.get("steps", ())],
        attempts=[_row(earlier, above, begin, length, now) for earlier in step.get("attempts", ())],
    )


def _name(step: Step, above: str) -> str:
    """The name of a step for people: `+open` of a step `container` is `container open`."""
    name = _text(step.get("name")) or _text(step.get("path"))
    return f"{above} {name[1:]}".strip() if name.startswith("+") else name.removeprefix("step_")


def _facts(step: Step) -> list[tuple[str, str]]:
    usage = step.get("usage")
    used = usage if isinstance(usage, Mapping) else {}
    policy = step.get("policy")
    outputs = step.get("outputs")
    pairs = [
        ("What ran", _text(step.get("reference")) or _text(step.get("written"))),
        ("Environment", _text(step.get("environment"))),
        ("Processor", _processor(used)),
        ("Memory", _size(used, "memory_peak_bytes") or _size(used, "max_rss_bytes")),
        ("Disk read", _size(used, "io_read_bytes")),
        ("Disk written", _size(used, "io_write_bytes")),
        ("Signal", _text(step.get("signal"))),
        ("Added by", {"inserted": "a policy"}.get(_text(step.get("origin")), "")),
        ("Outputs", _pairs(outputs)),
        ("Policy", " ".join(map(_text, (policy.get("decision"), policy.get("rule"), policy.get("reason")))).strip())
        if isinstance(policy, Mapping)
        else ("Policy", ""),
    ]
    return [(name, value) for name, value in pairs if value]


def _pairs(values: Any) -> str:
    if not isinstance(values, Mapping):
        return ""
    return _text(" ".join(f"{name}={_text(value)}" for name, value in values.items()))


def _processor(used: Mapping[str, Any]) -> str:
    parts = [value for name in ("cpu_user_seconds", "cpu_system_seconds") if (value := _number(used.get(name)))]
    return format_duration(sum(parts)) if parts else ""


def _size(used: Mapping[str, Any], name: str) -> str:
    return format_size(_number(used.get(name)))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
