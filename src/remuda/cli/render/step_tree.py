"""The result of `remuda step run`: the events of its steps as one tree, and the same for people. Pure.

Fields of a step are those of its `finished` event (docs/reference/step-results.md), without what only numbers or places
it. Of a step that was tried several times the last attempt counts; `attempts` has the earlier ones.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remuda.cli.render.listing import on_one_line
from remuda.cli.render.step_lines import MARKS, step_lines
from remuda.model.step_tree import attempts, tree_of

if TYPE_CHECKING:
    from remuda.wire.proto import agent_pb2 as pb

_OF_THE_LOG = ("log_start", "log_end", "log_stream")
"""Nobody keeps the log."""

Result = dict[str, Any]


def result_of(events: Sequence[Mapping[str, Any]], end: "pb.JobEnd", *, root: str) -> Result:
    """What is printed. `root` is the path of the step that was asked for; empty where that is the whole list."""
    top = tree_of(events)
    _complete(top)
    asked = next((step for step in top if root and step.get("path") == root), {})
    return {
        "status": end.status,
        "exit_code": 0 if end.status == "success" else (end.exit_code if end.exit_code >= 0 else None),
        "outputs": asked.get("outputs", {}),
        "exports": asked.get("exports", {}),
        "error": None if end.status == "success" else asked.get("error") or end.message,
        "steps": asked["steps"] if asked else top,
    }


def _complete(steps: Sequence[Result]) -> None:
    for step in attempts(steps):
        for name in _OF_THE_LOG:
            step.pop(name, None)
        step |= {"outputs": step.get("outputs", {}), "exports": step.get("exports", {}), "steps": step.pop("steps")}
        _complete(step["steps"])


def summary_of(result: Result) -> str:
    """The same for people: a line for each step, what it gave, and why it failed."""
    lines = [*step_lines(result["steps"]), f"{MARKS.get(result['status'], '?')} {result['status']}"]
    for kind in ("outputs", "exports"):
        lines += [f"  {kind[:-1]} {name} = {value}" for name, value in result[kind].items()]
    if result["error"]:
        lines.append(f"  {result['error']}")
    return "\n".join(map(on_one_line, lines))
