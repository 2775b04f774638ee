"""Evaluates the expressions of a step when it begins: inputs, environment, command, condition, outputs. Pure: no I/O.

A step is called by an *entry* in a list of steps, and described by a *definition* in its own file. Inputs and the `env`
of an entry are evaluated in the context of the step in whose file the entry is written (its *frame*), the `env` and the
command of a definition in the context of the step itself. Environment, from the lowest precedence to the highest: the
agent's base, the request, job variables, CI_JOB_STATUS, exports of earlier steps, `env` of the enclosing steps (inner
ones override outer ones), of the entry, of the definition. A variable's expression sees the layers of lower precedence.

The environment of a step that a policy inserted has nothing of the request, the job variables and the job's exports,
because a deny list of names that could change what a program does is never complete. Its expressions can read job
variables (`vars`)."""

import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.steps.errors import DefinitionError
from remuda.steps.job_tree import sequence
from remuda.steps.job_tree.outcome import Cause
from remuda.steps.job_tree.rights import exchange_of, find_exchange_files
from remuda.steps.job_tree.sequence import Level
from remuda.steps.job_tree.tree import Entered, Loaded, Node, Tree
from remuda.steps.language.checking import check_inputs, check_outputs
from remuda.steps.language.evaluate import Context, Sensitive, expand, expand_env, expand_text, holds, reveal
from remuda.steps.language.values import Exec
from remuda.steps.process.step_files import INSERTED_EXCHANGE, StepFiles

SHORTEST_SECRET = 3
"""Shorter sensitive texts are not masked in the log, because they would match everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Values that are the same for all steps of a job, such as its variables and folders."""

    base_env: Mapping[str, str]
    """The machine's environment for the user of the job's steps; steps in another environment do not get it."""
    agent_env: Mapping[str, str]
    """The machine's environment for the agent's own user."""
    request_env: Mapping[str, str]
    """Environment of the request, and the job variables."""
    variables: Mapping[str, str]
    inserted_files: Mapping[str, str] = field(default_factory=dict)
    """File variables as inserted steps get them: name to path."""
    authorities: Mapping[str, str] = field(default_factory=dict)
    """For a confined job: files with certificates for programs with the agent's rights. They are copies of file
    variables, because a path or file of the job could be a pipe or somebody else's file."""
    work_dir: str
    folder: Path
    """The job's folder in the agent's data folder."""
    key: str
    """Identifies the job among those of all agents."""
    hold_failed_seconds: int = 0
    """How long the environments of a failed job are kept."""
    deadline: float | None = None
    """When the job's timeout passes; None: never."""
    is_confined: bool = False
    """The job's own steps run in an environment of the platform, or as another user, or in a sandbox."""
    inserted_env: Mapping[str, str] = field(default_factory=dict)
    """The predefined variables of inserted steps, with values that the job cannot change."""
    is_apart: bool = False
    """The job's own steps run as another user than the agent, or in a sandbox."""
    is_inside: bool = False
    """The job's own steps run in an environment that the platform opens, such as a container, never on the machine."""


def condition_holds(tree: Tree, facts: Facts, node: Node, level: Level) -> bool:
    """Evaluate a step's `if` condition. `level`: whether its list failed or was stopped, for `failure()` and such."""
    is_cancelled = level.stopped is Cause.CANCEL
    context = _entry_context(
        tree, facts, node, failed=level.failed or (level.stopped is not None), cancelled=is_cancelled
    )
    return holds(node.call.condition, context)


def evaluate(tree: Tree, facts: Facts, node: Node, loaded: Loaded, serial: int) -> Entered:
    """Evaluate a step's inputs, environment and command for the attempt `serial`. Raises DefinitionError if invalid."""
    invocation: Mapping[str, Any] = {}
    if node.phase:
        assert node.parent is not None
        inputs = node.parent.entered.inputs
        context = _definition_context(facts, node, loaded, inputs, _environment_around(tree, facts, node), serial)
    else:
        outer = _entry_context(tree, facts, node)
        invocation = expand_env(node.call.env, outer)
        expanded = expand(dict(node.call.inputs), outer)
        inputs = expanded if loaded.is_script else check_inputs(loaded.step.spec, expanded)
        context = _definition_context(facts, node, loaded, inputs, dict(outer.env) | dict(invocation), serial)
    definition = loaded.step.definition
    definition_env: Mapping[str, Any] = {}
    if definition.env:
        definition_env = expand_env(definition.env, context)
        context = _definition_context(facts, node, loaded, inputs, dict(context.env) | dict(definition_env), serial)
    command, work_dir = _command(definition.exec, context, facts)
    return Entered(
        inputs=inputs,
        invocation_env=invocation,
        definition_env=definition_env,
        command=command,
        work_dir=work_dir,
    )


def evaluate_root(tree: Tree, facts: Facts) -> Entered:
    """Evaluate inputs and `env` of the definition in the job's request, around its list of steps. A request cannot set
    these inputs, so each needs a default; delegated steps have those of their original job. Raises DefinitionError."""
    root = tree.root
    assert root.loaded is not None
    spec, definition = root.loaded.step.spec, root.loaded.step.definition
    inputs = check_inputs(spec, {}) if spec.inputs else root.entered.inputs
    if not definition.env:
        return replace(root.entered, inputs=inputs)
    context = _definition_context(facts, root, root.loaded, inputs, _environment_around(tree, facts, root), root.serial)
    env: Mapping[str, Any] = expand_env(definition.env, context)
    return replace(root.entered, inputs=inputs, definition_env=env)


def reference_text(tree: Tree, facts: Facts, node: Node, text: str) -> str:
    return str(reveal(expand_text(text, _entry_context(tree, facts, node))))


def run_outputs(tree: Tree, facts: Facts, node: Node) -> dict[str, Any]:
    """Return the outputs of a list of steps that has succeeded. Raises DefinitionError if one is invalid."""
    assert node.loaded is not None
    definition, spec = node.definition, node.loaded.step.spec
    if definition.delegate is not None:
        if definition.delegate not in node.steps:
            raise DefinitionError(f'delegate: no step "{definition.delegate}" has run')
        return dict(node.steps[definition.delegate]["outputs"])
    if not definition.outputs and not spec.outputs:
        return {}
    env = _environment_below(tree, facts, node, node.entered)
    context = _definition_context(facts, node, node.loaded, node.entered.inputs, env, node.serial, steps=node.steps)
    return check_outputs(spec, expand(dict(definition.outputs), context))


def step_environment(tree: Tree, facts: Facts, node: Node, entered: Entered | None = None) -> dict[str, str]:
    """Return a step's environment variables. `entered`: evaluated values if it has not begun; None: those in `node`."""
    layers = _environment_below(tree, facts, node, entered or node.entered)
    return {name: reveal(value) for name, value in layers.items()}


def environment_above(tree: Tree, host: Node) -> dict[str, str]:
    """Return the variables that steps inside the environment of the step `host` get and that override job variables:
    exports of earlier steps, and `env` of `host` and the steps that enclose it."""
    layers: dict[str, Any] = dict(tree.exports)
    for outer in reversed(list(host.up())):
        layers.update(outer.entered.invocation_env)
        if not outer.makes_environment:
            layers.update(outer.entered.definition_env)
    return {name: reveal(value) for name, value in layers.items()}


def secrets_in(*values: Any) -> list[str]:
    texts: list[str] = []
    for value in values:
        match value:
            case Sensitive():
                texts += _texts(value.value)
            case Mapping():
                texts += secrets_in(*value.values())
            case list() | tuple():
                texts += secrets_in(*value)
    return texts


def secrets_of(loaded: Loaded, entered: Entered) -> list[str]:
    """Return sensitive inputs and variables of a step, to mask; not a script's inputs, which are masked already."""
    inputs = {} if loaded.is_script else entered.inputs
    return secrets_in(inputs, entered.invocation_env, entered.definition_env)


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value] if len(value.strip()) >= SHORTEST_SECRET else []
        case Mapping():
            return [text for item in value.values() for text in _texts(item)]
        case list() | tuple():
            return [text for item in value for text in _texts(item)]
        case bool() | None:
            return []
    return _texts(str(value))


def _command(command: Exec | None, context: Context, facts: Facts) -> tuple[tuple[str, ...], str]:
    if command is None:
        return (), facts.work_dir
    words = tuple(str(reveal(expand_text(word, context))) for word in command.command)
    place = "" if command.work_dir is None else str(reveal(expand_text(command.work_dir, context)))
    for word in (*words, place):
        if "\0" in word:
            raise DefinitionError("exec: a word of the command or its work_dir holds a NUL byte")
    return words, os.path.normpath(os.path.join(facts.work_dir, place))


def _entry_context(tree: Tree, facts: Facts, node: Node, *, failed: bool = False, cancelled: bool = False) -> Context:
    """Return what expressions in a step's entry (its item in a list of steps) can refer to: the values of the step
    whose file contains the entry. `failed`, `cancelled`: what status functions such as `failure()` return."""
    frame = node.frame
    assert frame.loaded is not None
    output_file, export_file, input_file = find_exchange_files(facts.folder, frame).exchange_paths()
    return Context(
        env=_environment_around(tree, facts, node),
        inputs=frame.entered.inputs,
        vars=_variables(facts, node),
        steps=frame.steps,
        func_dir=frame.loaded.func_dir,
        work_dir=facts.work_dir,
        output_file=output_file,
        export_file=export_file,
        input_file=input_file,
        failed=failed,
        cancelled=cancelled,
    )


def _definition_context(
    facts: Facts,
    node: Node,
    loaded: Loaded,
    inputs: Mapping[str, Any],
    env: Mapping[str, Any],
    serial: int,
    steps: Mapping[str, Any] | None = None,
) -> Context:
    """Return what expressions in a step's own definition file (not in the entry that calls it) can refer to, such as
    `inputs`, `env` and `steps`. `serial`: number of the attempt."""
    output_file, export_file, input_file = StepFiles(facts.folder, serial, exchange_of(node)).exchange_paths()
    return Context(
        env=env,
        inputs=inputs,
        vars=_variables(facts, node),
        steps=steps or {},
        func_dir=loaded.func_dir,
        work_dir=facts.work_dir,
        output_file=output_file,
        export_file=export_file,
        input_file=input_file,
    )


def _variables(facts: Facts, node: Node) -> Mapping[str, str]:
    """Return the job variables that a step's expressions see. A step that a policy inserted gets copies of file
    variables, and its own values of predefined variables, both of which the job cannot change."""
    if not node.is_inserted:
        return facts.variables
    files = facts.inserted_files if exchange_of(node) == INSERTED_EXCHANGE else {}
    return {**facts.variables, **files, **facts.inserted_env}


def _environment_around(tree: Tree, facts: Facts, node: Node) -> dict[str, Any]:
    env: dict[str, Any] = dict(facts.base_env) if node.host is None else {}
    insertion = node.insertion
    env.update(facts.request_env if insertion is None else facts.inserted_env)
    env["CI_JOB_STATUS"] = sequence.job_status(tree, node)
    if insertion is None:
        env.update(tree.exports)
    else:
        env.update(_isolate_inserted_step(tree, facts, insertion))
        env.update(insertion.exports)
    outers = () if node.parent is None else node.parent.up()
    around = [outer for outer in outers if insertion is None or outer.is_inserted]
    for outer in reversed(around):
        env.update(outer.entered.invocation_env)
        # The `env` of a step that makes an environment is for its own commands only.
        if not outer.makes_environment or (outer is node.parent and node.phase):
            env.update(outer.entered.definition_env)
    return env


def _isolate_inserted_step(tree: Tree, facts: Facts, insertion: Node) -> dict[str, str]:
    """Return variables that give a step inserted by a policy its own home, and make git refuse repositories that are
    not marked as safe in that home, because the job controls their configuration."""
    serial = insertion.serial if insertion.serial >= 0 else tree.serials
    home = str(StepFiles(facts.folder, serial, exchange_of(insertion)).home)
    return {"HOME": home, "GIT_CONFIG_COUNT": "0", "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}


def _environment_below(tree: Tree, facts: Facts, node: Node, entered: Entered) -> dict[str, Any]:
    env = _environment_around(tree, facts, node)
    env.update(entered.invocation_env)
    env.update(entered.definition_env)
    return env
