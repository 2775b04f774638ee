"""The job's own work: its scripts, or the steps of its `run`, and its after_script.

Pure. Steps of a `run` are held against what the agent can do before anything starts: what it cannot do fails the job
with its reason, and is never left out. The runner's build scripts stand in the shell of every script; around a `run`,
which has no such shell, they are steps of their own.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from remuda.manager.config import RunnerConfig
from remuda.manager.entries import CONDITIONS, CompileError, Entry, entry, lines
from remuda.manager.variables import Variables
from remuda.steps.definition import parse_definition
from remuda.steps.errors import DefinitionError
from remuda.wire.runner_api import JobPayload

AFTER_SCRIPT_SECONDS = 300
AFTER_SCRIPT = "after_script"
_OWN = ("pre_build_script", "post_build_script", AFTER_SCRIPT)


def user_steps(payload: JobPayload, runner: RunnerConfig, variables: Variables, taken: Collection[str]) -> list[Entry]:
    """Everything between getting files and keeping them; `taken` are the names of the other steps."""
    run = payload.run if isinstance(payload.run, str) else ""
    work = _run_steps(run, runner, {*taken, *_OWN}) if run else _scripts(payload, runner)
    return [*work, *_after_script(payload, variables)]


def _scripts(payload: JobPayload, runner: RunnerConfig) -> list[Entry]:
    entries = []
    for step in payload.steps:
        if step.name == AFTER_SCRIPT:
            continue
        script = [*lines(runner.pre_build_script), *step.script, *lines(runner.post_build_script)]
        name = "step_" + re.sub(r"[^A-Za-z0-9_]", "_", step.name)
        one = entry(name, "script", {"script": script or [":"]}, origin="user")
        if step.when in CONDITIONS and step.when != "on_success":
            one["if"] = CONDITIONS[step.when]
        if step.allow_failure:
            one["continue_on_error"] = True
        entries.append(one)
    return entries or [entry("step_script", "script", {"script": [":"]}, origin="user")]


def _after_script(payload: JobPayload, variables: Variables) -> list[Entry]:
    script = [line for step in payload.steps if step.name == AFTER_SCRIPT for line in step.script]
    if not script:
        return []
    ignores_errors = variables["AFTER_SCRIPT_IGNORE_ERRORS"].lower() not in ("false", "0")
    rest = {"if": CONDITIONS["always"], "continue_on_error": ignores_errors, "timeout": AFTER_SCRIPT_SECONDS}
    return [entry(AFTER_SCRIPT, "script", {"script": script}, origin="user") | rest]


def _run_steps(text: str, runner: RunnerConfig, taken: Collection[str]) -> list[Entry]:
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CompileError(f"run: the server sent no JSON list of steps: {error}") from None
    found = [_renamed(step) for step in listed] if isinstance(listed, list) else listed
    try:
        names = [step.name for step in parse_definition(f"{{}}\n---\n{json.dumps({'run': found})}").steps]
    except DefinitionError as error:
        raise CompileError(str(error)) from None
    for name, step in zip(names, found, strict=True):
        if name in taken:
            raise CompileError(f'run: "{name}" is the name of a step of the runner; give yours another')
        if "${{" in json.dumps(step):
            # To the agent a script is text; its author means an expression.
            raise CompileError(f"run ({name}): expressions are not supported yet; use variables")
    before, after = lines(runner.pre_build_script), lines(runner.post_build_script)
    return [
        *([entry("pre_build_script", "script", {"script": before})] if before else ()),
        *(step | {"origin": "user"} for step in found),
        *([entry("post_build_script", "script", {"script": after})] if after else ()),
    ]


def _renamed(step: Any) -> Any:
    """`func` is the newer word for `step`."""
    if isinstance(step, dict) and "func" in step and "step" not in step:
        return {"step" if key == "func" else key: value for key, value in step.items()}
    return step
