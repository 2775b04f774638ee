"""Creates the events of a job's journal and applies them to the tree of its steps. Pure: no I/O.

The engine stores each event and applies it. After a crash, applying the stored events in order rebuilds the same tree.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remuda.steps.job_tree.evaluation import Facts, evaluate, secrets_in, secrets_of
from remuda.steps.job_tree.outcome import Cause, Fault, Finished, Kind, Status
from remuda.steps.job_tree.stored_steps import restore, to_stored
from remuda.steps.job_tree.tree import Entered, Inserted, Loaded, Node, Tree
from remuda.steps.language.evaluate import is_sensitive, reveal, sensitive

Event = dict[str, Any]


def enter_event(
    node: Node,
    loaded: Loaded,
    *,
    serial: int,
    stream: int,
    at: float,
    text: str,
    log_start: int,
    timeout_seconds: float | None,
) -> Event:
    """Return the event that an attempt at a step begins at the time `at` (`text`: the same time, formatted). `serial`:
    number of the attempt. `stream`: the number that marks its log lines; `log_start`: byte offset of the first one.
    `timeout_seconds`: the policy's limit, which replaces the step's own timeout if it is shorter."""
    event: Event = {"event": "enter", "node": node.key, "serial": serial, "stream": stream, "at": at, "text": text}
    event["log_start"] = log_start
    own = node.call.timeout_seconds
    if timeout_seconds is not None and (own is None or timeout_seconds < own):
        event["timeout"] = timeout_seconds
    if values := to_stored(loaded):
        event["loaded"] = values
    return event


def finish_event(
    node: Node, result: Finished, outputs: Mapping[str, Any], exports: Mapping[str, str], masks: list[str]
) -> Event:
    event: Event = {"event": "finish", "node": node.key, "result": _as_stored(result)}
    if outputs:
        event["outputs"] = reveal(dict(outputs))
    if marked := [name for name, value in outputs.items() if is_sensitive(value)]:
        event["sensitive"] = marked
    if exports:
        event["exports"] = dict(exports)
    if masks:
        event["masks"] = masks
    return event


def delay_event(node: Node, result: Finished, *, until: float, masks: list[str]) -> Event:
    return {"event": "delay", "node": node.key, "result": _as_stored(result), "until": until, "masks": masks}


def again_event(node: Node) -> Event:
    return {"event": "again", "node": node.key}


def stop_event(node: Node, cause: Cause, text: str = "") -> Event:
    return {"event": "stop", "node": node.key, "cause": str(cause)} | ({"text": text} if text else {})


def delegated_result_event(node: Node, result: Mapping[str, Any]) -> Event:
    """Return the event that another agent has reported `result` of a step. `node`: the step of this job whose inner
    steps that agent runs. Outputs and exports are included only if the step is one of these inner steps (not nested
    deeper), and has ended without another attempt to follow."""
    event: Event = {"event": "folded", "node": node.key}
    if result["event"] == "finished" and result["path"].count("/") == 1 and not result.get("retried"):
        event |= {"name": result["name"], "outputs": result.get("outputs", {}), "exports": result.get("exports", {})}
    return event


def surround_event(node: Node, around: Inserted) -> Event:
    before, after = ([call.name for call in calls] for calls in (around.before, around.after))
    return {"event": "surround", "node": node.key, "before": before, "after": after}


def apply(tree: Tree, facts: Facts, event: Event, *, entering: tuple[Loaded, Entered] | None = None) -> None:
    """Apply an event to the tree. `entering`: loaded step and evaluated values for `enter`; None: take the event's."""
    match event["event"]:
        case "cancel":
            tree.stop(tree.root, Cause.CANCEL)
        case "enter":
            node = tree.find(event["node"])
            if "timeout" in event:
                node.call = replace(node.call, timeout_seconds=event["timeout"])
            if entering is None:
                loaded = restore(node, event.get("loaded", {}))
                entering = loaded, evaluate(tree, facts, node, loaded, event["serial"])
            tree.masks += secrets_of(*entering)
            tree.enter(node, *entering, serial=event["serial"], stream=event["stream"], at=event["at"])
            node.started_text, node.log_start = event["text"], event["log_start"]
        case "finish":
            outputs = dict(event.get("outputs", {}))
            for name in event.get("sensitive", ()):
                outputs[name] = sensitive(outputs[name])
            tree.masks += secrets_in(outputs)
            result, exports = _from_stored(event["result"]), event.get("exports", {})
            tree.finish(tree.find(event["node"]), result, outputs, exports, event.get("masks", []))
        case "again":
            tree.find(event["node"]).again()
        case "delay":
            tree.delay(tree.find(event["node"]), _from_stored(event["result"]), event["masks"], until=event["until"])
        case "stop":
            tree.stop(tree.find(event["node"]), Cause(event["cause"]), event.get("text", ""))
        case "folded":
            tree.apply_delegated_result(tree.find(event["node"]), event)
        case "surround":
            tree.surround(tree.find(event["node"]), event["before"], event["after"])


def _as_stored(result: Finished) -> dict[str, Any]:
    values = {"status": str(result.status), "exit_code": result.exit_code, "error": result.error}
    values |= {"fault": result.fault and str(result.fault), "kind": result.kind and str(result.kind)}
    return {name: value for name, value in values.items() if value is not None}


def _from_stored(values: Mapping[str, Any]) -> Finished:
    return Finished(
        status=Status(values["status"]),
        exit_code=values.get("exit_code"),
        error=values.get("error"),
        fault=Fault(values["fault"]) if "fault" in values else None,
        kind=Kind(values["kind"]) if "kind" in values else None,
    )
