"""Builds the result of `remuda step run` from the step's events: a tree of all steps that ran, and a summary for
people. Pure. A step in the tree has the fields of its `finished` event (docs/reference/step-results.md), without
sequence number and position in the log. If it was retried, `attempts` has the earlier attempts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remuda.localrun.render.step_lines import MARKS, step_lines
from remuda.localrun.render.words import on_one_line
from remuda.model.step_tree import attempts, tree_of

if TYPE_CHECKING:
    from remuda.wire.proto import agent_pb2 as pb

_LOG_FIELDS = ("log_start", "log_end", "log_stream")
"""Positions in a log that this command does not keep."""

Result = dict[str, Any]


def result_of(events: Sequence[Mapping[str, Any]], end: "pb.JobEnd", *, root: str) -> Result:
    """Return the result document: status, exit code, outputs, exports, error and step tree. `end`: the agent's message
    about the job's end. `root`: path of the step that the user called; empty for a list of steps (no outputs)."""
    top = tree_of(events)
    _complete(top)
    called = next((step for step in top if root and step.get("path") == root), {})
    return {
        "status": end.status,
        "exit_code": 0 if end.status == "success" else (end.exit_code if end.exit_code >= 0 else None),
        "outputs": called.get("outputs", {}),
        "exports": called.get("exports", {}),
        "error": None if end.status == "success" else called.get("error") or end.message,
        "steps": called["steps"] if called else top,
    }


def _complete(steps: Sequence[Result]) -> None:
    for step in attempts(steps):
        for name in _LOG_FIELDS:
            step.pop(name, None)
        step |= {"outputs": step.get("outputs", {}), "exports": step.get("exports", {}), "steps": step.pop("steps")}
        _complete(step["steps"])


def summary_of(result: Result) -> str:
    lines = [*step_lines(result["steps"]), f"{MARKS.get(result['status'], '?')} {result['status']}"]
    for kind in ("outputs", "exports"):
        lines += [f"  {kind[:-1]} {name} = {value}" for name, value in result[kind].items()]
    if result["error"]:
        lines.append(f"  {result['error']}")
    return "\n".join(map(on_one_line, lines))
