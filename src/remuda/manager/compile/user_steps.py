"""Compiles the job's own steps: its scripts, or the steps of its `run`, and its after_script. Pure code without I/O.

Steps of a `run` are parsed here as the agent will parse them, so that an error fails the job before anything starts.
`run` is GitLab's format, so keys that only Remuda has are refused. The runner's pre_build_script and post_build_script
run in the shell of every script except after_script; around a `run` they are separate steps."""

import json
import re
from collections.abc import Collection

from remuda.manager.compile.step_entries import CONDITIONS, CompileError, Entry, entry, lines
from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RunnerConfig
from remuda.steps.errors import DefinitionError
from remuda.wire.runner_api import JobPayload

AFTER_SCRIPT_SECONDS = 300
AFTER_SCRIPT = "after_script"
_OWN = ("pre_build_script", "post_build_script", AFTER_SCRIPT)


def user_steps(payload: JobPayload, runner: RunnerConfig, variables: Variables, taken: Collection[str]) -> list[Entry]:
    """Return the job's own steps, after_script last. Raises CompileError if `run` is invalid or has a `taken` name."""
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
        step_entry = entry(name, "script", {"script": script or [":"]}, origin="user")
        if step.when in CONDITIONS and step.when != "on_success":
            step_entry["if"] = CONDITIONS[step.when]
        if step.allow_failure:
            step_entry["continue_on_error"] = True
        entries.append(step_entry)
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
        steps = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CompileError(f"run: the server sent no JSON list of steps: {error}") from None
    from remuda.steps.language.reading import read_step  # imported here because it is slow, and most jobs have none

    try:
        calls = read_step(f"{{}}\n---\n{json.dumps({'run': steps})}", file="run").definition.run
    except DefinitionError as error:
        raise CompileError(str(error)) from None
    for call in calls:
        if call.name in taken:
            raise CompileError(f'run: "{call.name}" is the name of a step of the runner; give yours another')
    before, after = lines(runner.pre_build_script), lines(runner.post_build_script)
    return [
        *([entry("pre_build_script", "script", {"script": before})] if before else ()),
        *(step | {"origin": "user"} for step in steps),
        *([entry("post_build_script", "script", {"script": after})] if after else ()),
    ]
