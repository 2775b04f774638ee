"""The result of `remuda step run`: the events of its steps as one tree, and the same for people. Pure.

Fields of a step are those of its `finished` event (docs/reference/step-results.md), without what only numbers or places
it. Of a step that was tried several times the last attempt counts; how many there were is its `attempt`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from remuda.wire.proto import agent_pb2 as pb

_OF_THE_STREAM = frozenset({"version", "seq", "event", "time", "log_start", "log_end", "log_stream", "retried"})
_MARKS = {"success": "✓", "failure": "✗", "cancelled": "■", "skipped": "-"}

Result = dict[str, Any]


def result_of(events: Sequence[Mapping[str, Any]], end: pb.JobEnd, *, root: str) -> Result:
    """What is printed. `root` is the path of the step that was asked for; empty where that is the whole list."""
    top: list[Result] = []
    nodes: dict[str, Result] = {}
    """The latest of each path: a list may call two steps by one name."""
    for event in events:
        path = event["path"]
        node = nodes.get(path)
        if node is None or node["is_over"]:
            node = nodes[path] = {"is_over": False, "steps": []}
            above = nodes.get(path.rpartition("/")[0])
            (top if above is None else above["steps"]).append(node)
        if event["event"] == "finished":
            node |= {key: value for key, value in event.items() if key not in _OF_THE_STREAM}
            node["is_over"] = not event.get("retried", False)
    _complete(top)
    asked = nodes.get(root, {})
    return {
        "status": end.status,
        "exit_code": 0 if end.status == "success" else (end.exit_code if end.exit_code >= 0 else None),
        "outputs": asked.get("outputs", {}),
        "exports": asked.get("exports", {}),
        "error": None if end.status == "success" else asked.get("error") or end.message,
        "steps": asked["steps"] if asked else top,
    }


def _complete(steps: Sequence[Result]) -> None:
    for step in steps:
        del step["is_over"]
        step |= {"outputs": step.get("outputs", {}), "exports": step.get("exports", {}), "steps": step.pop("steps")}
        _complete(step["steps"])


def summary_of(result: Result) -> str:
    """The same for people: a line for each step, what it gave, and why it failed."""
    lines = [*_lines(result["steps"], ""), f"{_MARKS.get(result['status'], '?')} {result['status']}"]
    for kind in ("outputs", "exports"):
        lines += [f"  {kind[:-1]} {name} = {value}" for name, value in result[kind].items()]
    if result["error"]:
        lines.append(f"  {result['error']}")
    return "\n".join(lines)


def _lines(steps: Sequence[Result], indent: str) -> list[str]:
    lines: list[str] = []
    for step in steps:
        failed = f": {step['error']}" if step.get("error") else ""
        lines.append(f"{indent}{_MARKS.get(step.get('status', ''), '?')} {step.get('name', '')}{failed}")
        lines += _lines(step["steps"], indent + "  ")
    return lines
