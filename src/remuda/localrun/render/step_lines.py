"""Formats a tree of step results as lines for people, with the important fields. Pure. Results are not validated: a
field of an unexpected type is left out. Used by `remuda job show --steps` and `remuda step run`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.lib.clock import parse_time
from remuda.localrun.render.step_events import display_name
from remuda.localrun.render.words import duration, size_in_words
from remuda.model.step_tree import Step

MARKS = {"success": "✓", "failure": "✗", "cancelled": "■", "skipped": "-", "running": "…"}
_LONGEST_VALUE = 40
_MOST_VALUES = 6
_DIGEST = len("sha256:") + 12


def step_lines(steps: Sequence[Step]) -> list[str]:
    """Return a line per step, and below it its attempts, policy decision, error, and the steps that it called."""
    rows = list(_rows(steps, "", ""))
    width = max((len(head) for head, facts in rows if facts), default=0)
    return [f"{head:<{width}}  {facts}".rstrip() for head, facts in rows]


def used_in_words(events: Sequence[Any]) -> str:
    """Describe which resources (CPU, memory, disk, network) a job used; '' if no event reports them."""
    event: Mapping[str, Any] = next((event for event in reversed(events) if _is_used(event)), {})
    used = dict(_submapping(event, "used"))
    for here, there in (("disk_read_bytes", "io_read_bytes"), ("disk_written_bytes", "io_write_bytes")):
        used[there] = used.get(here)
    parts = list(_usage(used))
    for field, word in (("network_received_bytes", "received"), ("network_sent_bytes", "sent")):
        if number := _number(used, field):
            parts.append(f"{word} {size_in_words(number)}")
    if number := _number(used, "work_dir_bytes"):
        parts.append(f"work folder {size_in_words(number)}")
    return ", ".join(parts)


def _is_used(event: Any) -> bool:
    return isinstance(event, Mapping) and event.get("event") == "used"


def _rows(steps: Sequence[Step], indent: str, above: str) -> Iterator[tuple[str, str]]:
    for step in steps:
        name = display_name(step, "")
        yield f"{indent}{MARKS.get(str(step['status']), '?')} {name or above}", ", ".join(_facts(step))
        for number, earlier in enumerate(step.get("attempts", ()), 1):
            why = f": {earlier['error']}" if earlier.get("error") else ""
            yield f"{indent}    attempt {number}: {', '.join(_outcome(earlier))}{why}", ""
        for remark in _remarks(step):
            yield f"{indent}    {remark}", ""
        yield from _rows(step["steps"], f"{indent}  ", name)


def _outcome(step: Step) -> Iterator[str]:
    yield str(step["status"])
    began, ended = parse_time(step.get("started_at")), parse_time(step.get("finished_at"))
    if began is not None and ended is not None:
        yield duration(max(ended - began, 0.0))
    if step.get("exit_code"):
        yield f"exit code {step['exit_code']}"


def _facts(step: Step) -> Iterator[str]:
    yield from _outcome(step)
    if step.get("attempts"):
        yield f"{len(step['attempts']) + 1} attempts"
    if step.get("origin") == "inserted":
        yield "inserted by policy"
    if reference := _reference(step):
        yield reference
    if step.get("environment"):
        yield f"in {step['environment']}"
    yield from _usage(_submapping(step, "usage"))
    if values := _values(_submapping(step, "outputs")):
        yield f"gave {values}"
    if exports := _submapping(step, "exports"):
        yield f"exported {', '.join(exports)}"


def _reference(step: Step) -> str:
    """Return where the step comes from (path, git or registry reference), with a short digest of its contents."""
    resolved = _submapping(step, "resolved")
    reference, digest = str(resolved.get("reference") or step.get("reference") or ""), resolved.get("digest")
    if not digest or str(digest) in reference:
        return reference
    return f"{reference} {str(digest)[:_DIGEST]}"


def _usage(usage: Mapping[str, Any]) -> Iterator[str]:
    cpu = _number(usage, "cpu_user_seconds") + _number(usage, "cpu_system_seconds")
    if cpu >= 0.05:
        yield f"cpu {duration(cpu)}"
    if peak := _number(usage, "memory_peak_bytes") or _number(usage, "max_rss_bytes"):
        yield f"memory {size_in_words(peak)}"
    for field, word in (("io_read_bytes", "read"), ("io_write_bytes", "wrote")):
        if number := _number(usage, field):
            yield f"{word} {size_in_words(number)}"


def _remarks(step: Step) -> Iterator[str]:
    """Yield texts about a step: the policy's decision, enforced limits, its error, and fields too long to store."""
    policy = _submapping(step, "policy")
    reason = policy.get("reason")
    if policy.get("decision") == "denied":
        yield f'denied by rule "{policy.get("rule")}"' + (f": {reason}" if reason else "")
    elif policy.get("rule"):
        yield f'allowed by rule "{policy["rule"]}"'
    if enforced := _texts(policy, "enforced"):
        yield f"enforced: {', '.join(enforced)}"
    if advisory := _texts(policy, "advisory"):
        yield f"advisory: {_by_reason(advisory, _submapping(policy, 'why'))}"
    if step.get("error") and step["error"] != reason:
        yield str(step["error"])
    if left_out := _texts(step, "left_out"):
        yield f"too long to be kept: {', '.join(left_out)}"


def _by_reason(names: list[str], why: Mapping[str, Any]) -> str:
    """Join names to a text, grouped by the reason in `why`: `a, b (reason)`; no parentheses without a reason."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(str(why.get(name) or ""), []).append(name)
    return ", ".join(", ".join(group) + (f" ({reason})" if reason else "") for reason, group in groups.items())


def _values(values: Mapping[str, Any]) -> str:
    shown = [f"{name}={_value(value)}" for name, value in list(values.items())[:_MOST_VALUES]]
    more = len(values) - _MOST_VALUES
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _submapping(step: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = step.get(name)
    return value if isinstance(value, Mapping) else {}


def _texts(step: Mapping[str, Any], name: str) -> list[str]:
    value = step.get(name)
    return [str(item) for item in value] if isinstance(value, list) else []


def _number(step: Mapping[str, Any], name: str) -> float:
    value = step.get(name)
    return value if isinstance(value, int | float) else 0
