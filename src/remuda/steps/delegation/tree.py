"""Delegation as `steps.engine` uses it: writes the order for another agent, and adds its results to this job's tree.

If an environment was opened with `agent`, a command that connects to another agent, all its inner steps are sent to
that agent in one request. A third document of the request, which only agents read, is the *context*: the values that
expressions of these steps may use."""

import asyncio
import json
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.lib.files import write_whole
from remuda.steps.errors import DefinitionError
from remuda.steps.job_files.journal import read_request
from remuda.steps.job_tree.evaluation import Facts, environment_above
from remuda.steps.job_tree.outcome import Cause, Fault, Finished, Kind, Status, cancel_result, failure
from remuda.steps.job_tree.sequence import deadlines
from remuda.steps.job_tree.tree import Inherited, Node, Tree
from remuda.steps.language.evaluate import is_sensitive, reveal, sensitive
from remuda.steps.language.references import parse_reference
from remuda.steps.language.values import Call, Reference, ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.process.marks import VARIABLE
from remuda.steps.process.step_files import StepFiles

_CONTEXT = "context"
_SYSTEM = "runner_system_failure"

WrapCommand = Callable[[Sequence[str], Mapping[str, str], Path], tuple[Sequence[str], Mapping[str, str]]]
"""Takes a command, its environment and the path of a file that may be written. Returns command line and environment
that run the command as the job's user and in its sandbox, any number of times."""
ShowValues = Callable[[Mapping[str, Any]], dict[str, Any]]


def write_order(tree: Tree, facts: Facts, node: Node, files: StepFiles, wrap: WrapCommand) -> Path:
    """Write the order for the other agent (`files.Order`) to a file that the job cannot read; return its path. `node`:
    the delegating step. `files`: its paths. Raises DefinitionError if steps cannot be delegated to that agent.

    The program that delegates has the agent's rights, and so have those that end the delegated job or pass on a shell.
    If the job has fewer rights, all of them start the command that connects with `wrap`, as the job's user and in its
    sandbox. Then the other agent is the job's choice: it gets only what the job itself knows."""
    host = node.parent
    assert host is not None
    command = (host.environment or {}).get("agent")
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        raise DefinitionError(
            f'the environment of {host.path} cannot be reached: its "agent" must be a list of strings'
        )
    if host.host is not None:
        raise DefinitionError(
            f"the environment of {host.path} has its own agent and cannot be opened inside of another"
        )
    request = read_request(facts.folder)
    if facts.is_apart and request.policy and json.loads(request.policy).get("layers"):
        raise DefinitionError(
            f"the environment of {host.path} has its own agent; it cannot be opened in a job with a policy that runs "
            "as another user or in a sandbox, because nothing would make that agent apply the policy. Give the job to "
            "a runner of that machine"
        )
    connection: dict[str, Any] = {}
    if facts.is_apart:
        env = dict(facts.base_env) | {VARIABLE: facts.key}
        command, connection_env = wrap(command, env, Path(files.own_path(".connection")))
        connection = {"connection_env": dict(connection_env)}
    policy = json.dumps(json.loads(request.policy) | {"delegated": True}) if request.policy else ""
    order = {
        "command": list(command),
        "key": f"{facts.key}{host.path}/{host.attempt}",
        "results": str(files.results),
        "work_dir": facts.work_dir,
        "env": dict(request.env),
        "variables": [
            {"key": variable.key, "value": variable.value, "file": variable.file, "masked": variable.masked}
            for variable in request.variables
        ],
        "steps": request_text(host.call.inner, _context_of(tree, host)),
        # The log is masked here anyway, and results of an agent of the job's choice are, too.
        "masks": [] if facts.is_apart else [*request.masks, *tree.masks],
        "mask_prefixes": list(request.mask_prefixes),
        "log_limit_bytes": request.log_limit_bytes,
        "timeout_seconds": _seconds_left(node, facts),
        "hold_failed_seconds": request.hold_failed_seconds,
        "policy": policy,
    } | connection
    write_whole(files.order, json.dumps(order).encode())
    return files.order


def request_text(calls: Sequence[Call], context: Inherited) -> str:
    """Return the text of a request: three documents with spec, `calls`, and the values that expressions may use."""
    documents = (
        {"spec": {"remuda": 1}},
        {"run": [_entry(call) for call in calls]},
        {_CONTEXT: _plain(context)},
    )
    return "\n---\n".join(json.dumps(document) for document in documents)


def read_context(text: str) -> Inherited:
    """Return the context (values for expressions) of a request; empty if none. Raises DefinitionError if malformed."""
    parts = text.split("\n---\n")
    if len(parts) != 3 or not parts[2].startswith(f'{{"{_CONTEXT}":'):
        return Inherited()
    try:
        value = json.loads(parts[2])[_CONTEXT]
        inputs, steps, exports = dict(value["inputs"]), dict(value["steps"]), dict(value["exports"])
        marked = set(value["sensitive"])
    except (ValueError, KeyError, TypeError):
        raise DefinitionError(
            "steps: the third document is not a valid context; another version of the agent wrote it"
        ) from None
    return Inherited(
        inputs={
            name: sensitive(input_value) if name in marked else input_value for name, input_value in inputs.items()
        },
        steps=steps,
        exports=exports,
    )


def _context_of(tree: Tree, host: Node) -> Inherited:
    frame = host.frame
    return Inherited(inputs=frame.entered.inputs, steps=frame.steps, exports=environment_above(tree, host))


def _plain(context: Inherited) -> dict[str, Any]:
    """Convert a context (values for expressions) to JSON, without steps with sensitive outputs: it cannot mark them."""
    return {
        "inputs": reveal(dict(context.inputs)),
        "steps": {name: reveal(step) for name, step in context.steps.items() if not is_sensitive(step)},
        "exports": dict(context.exports),
        "sensitive": [name for name, value in context.inputs.items() if is_sensitive(value)],
    }


def _entry(call: Call) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": call.name, "origin": call.origin if call.origin == "compiled" else "user"}
    if call.reference is not None:
        entry |= {"step": _format_reference(call.reference), "inputs": dict(call.inputs)}
    if call.env:
        entry["env"] = dict(call.env)
    if call.condition is not None:
        entry["if"] = call.condition
    if call.retry is not None:
        entry["retry"] = {"times": call.retry.times, "delay": call.retry.delay_seconds}
    if call.timeout_seconds is not None:
        entry["timeout"] = call.timeout_seconds
    if call.continue_on_error:
        entry["continue_on_error"] = True
    if call.parallel:
        entry["parallel"] = [_entry(inner) for inner in call.parallel]
    if call.inner:
        entry["run"] = [_entry(inner) for inner in call.inner]
    return entry


def _format_reference(reference: Reference) -> str | dict[str, Any]:
    try:
        if parse_reference(reference.text, "") == reference:
            return reference.text
    except DefinitionError:
        pass
    rest = {"dir": reference.path, "file": reference.file}
    rest = {key: value for key, value in rest.items() if value}
    if reference.kind is ReferenceKind.OCI:
        names = {"registry": reference.registry, "repository": reference.repository, "tag": reference.tag}
        return {"oci": names | rest}
    return {"git": {"url": reference.url, "rev": reference.version} | rest}


def _seconds_left(node: Node, facts: Facts) -> int:
    """Return how many seconds of the job's timeout were left when `node` began, at least 1; 0 if it has none."""
    limits = [limit for limit, _, cause in deadlines(node, job_deadline=facts.deadline) if cause is Cause.JOB_TIMEOUT]
    return max(1, int(min(limits) - node.started_at) + 1) if limits else 0


def read_returned(
    path: Path, count: int, place: tuple[int, int] = (0, 0)
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, tuple[int, int]]:
    """Read the results of a delegated job from a file. Returns those after the first `count`, the event for the job's
    end (None if it has not ended), and the next `place`: the file offset to read from, and how many results are before
    it. A restarted agent begins at (0, 0)."""
    offset, before = place
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], None, place
    whole = data[: data.rfind(b"\n") + 1]
    events = [json.loads(line) for line in whole.splitlines()]
    if events and events[-1]["event"] == "end":
        # The end is read again by the next call.
        return events[:-1][count - before :], events[-1], place
    return events[count - before :], None, (offset + len(whole), before + len(events))


def translate_result(node: Node, event: Mapping[str, Any], *, show: ShowValues | None = None) -> dict[str, Any]:
    """Convert a step result from the agent to which `node` delegates into one of this job: put the path of the parent
    of `node`, which opened the environment, before its `path` and `environment`; leave out `version` and `seq`.
    `show`: only if the job has chosen the agent, so that its result proves nothing: masks and truncates texts. Then
    what the result says about a policy is left out, and it is marked as `unverified`."""
    assert node.parent is not None
    path = node.parent.path
    result = {name: value for name, value in event.items() if name not in ("version", "seq")}
    if show is not None:
        result.pop("policy", None)
        result = show(result) | {"unverified": True}
    return result | {"path": path + event["path"], "environment": path + event.get("environment", "")}


def outcome_of(end: Mapping[str, Any], *, is_trusted: bool = True) -> Finished:
    """Return the result of the step that delegates. `is_trusted`: False if the job has chosen the other agent; then
    every failure counts as the job's."""
    code = end["exit_code"] if end["exit_code"] >= 0 else None
    match end["status"]:
        case "success":
            return Finished(status=Status.SUCCESS, exit_code=0)
        case "cancelled":
            return cancel_result()
    fault = Fault.RUNNER if is_trusted and end["reason"] == _SYSTEM else Fault.USER
    return failure(end["message"], Kind.STEP, fault=fault, exit_code=code)


async def end_elsewhere(files: StepFiles) -> None:
    """Make the other agent end the delegated job, if any, in case the delegating program was killed before."""
    if files.order.exists():
        process = await asyncio.create_subprocess_exec(
            *own_command("delegate", "--end", str(files.order)), stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
        await process.wait()
