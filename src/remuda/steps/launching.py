"""From a step that begins to the process that is started for it: its files are written, its command line decided.

What runs is a script's shell, the command of a definition, or one of our own programs (`remuda-step NAME`, which only
packages that come with the agent may name). In an environment that was opened with an `exec` prefix the command is put
into a file instead, and the prefix with that file's path is what is started here. Nothing secret is an argument.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.lib.files import write_whole
from remuda.steps.environment import fit
from remuda.steps.errors import DefinitionError
from remuda.steps.evaluation import Facts, step_environment
from remuda.steps.files import EXCHANGE, StepFiles
from remuda.steps.language.evaluate import reveal
from remuda.steps.leftovers import MARK
from remuda.steps.script import own_program, script_command
from remuda.steps.tree import Node, Tree

OWN = "remuda-step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: str
    only_for_shells: tuple[str, ...] = ()
    """Names of variables that no program can be given, but the shell of a script can."""
    program: tuple[str, ...] = ()
    """Name and arguments of our own program, where it is one; `argv` starts the same."""


def launch(tree: Tree, facts: Facts, node: Node, files: StepFiles) -> Launch:
    """Write what the step's program reads, and say how to start it. Raises DefinitionError."""
    loaded, entered = node.loaded, node.entered
    assert loaded is not None
    os.makedirs(facts.work_dir, mode=0o700, exist_ok=True)
    env = step_environment(tree, facts, node) | _own_variables(facts, files)
    host = node.host
    is_own = loaded.is_program and entered.command[:1] == (OWN,)
    if is_own:
        _write_inputs(files, entered.inputs)
        env |= {"REMUDA_INPUTS": str(files.inputs), "REMUDA_EXCHANGE": str(facts.folder / EXCHANGE)}
        return _own(entered.command[1:], dict(facts.base_env) | env, facts.work_dir)
    _make_mentioned(node, files, entered.inputs)
    if host is not None:
        return _in_environment(facts, host, node, files, env)
    fitting = fit(env)
    if loaded.is_script:
        path = fitting.exported.get("PATH", "")
        argv, text = script_command(reveal(dict(entered.inputs)), files.script, path=path, variables=fitting.too_large)
        _put(files.script, text.encode("utf-8", "surrogateescape"))
        names = tuple(sorted(fitting.too_large))
        return Launch(argv=tuple(argv), env=fitting.exported, work_dir=entered.work_dir, only_for_shells=names)
    _find(entered.command[0], entered.work_dir, env.get("PATH", ""))
    return Launch(argv=entered.command, env=fitting.exported, work_dir=entered.work_dir)


def _in_environment(facts: Facts, host: Node, node: Node, files: StepFiles, env: Mapping[str, str]) -> Launch:
    assert node.loaded is not None
    prefix = (host.environment or {}).get("exec")
    if not isinstance(prefix, list) or not prefix or not all(isinstance(word, str) for word in prefix):
        raise DefinitionError(f'the environment of {host.path} cannot run commands: its "exec" is no list of words')
    command = list(node.entered.command)
    if node.loaded.is_script:
        command, text = script_command(reveal(dict(node.entered.inputs)), files.script, path=None, variables={})
        _put(files.script, text.encode("utf-8", "surrogateescape"))
    request = {"command": command, "work_dir": node.entered.work_dir, "env": dict(env)}
    _put(files.command, json.dumps(request).encode())
    words = (*prefix, str(files.command))
    own_env = dict(facts.base_env) | dict(facts.request_env) | {MARK: env[MARK]}
    if prefix[0] == OWN:
        return _own(words[1:], own_env, facts.work_dir)
    return Launch(argv=words, env=fit(own_env).exported, work_dir=facts.work_dir)


def _own(program: tuple[str, ...], env: Mapping[str, str], work_dir: str) -> Launch:
    argv = (*own_program("step", "remuda.stdsteps"), *program)
    return Launch(argv=argv, env=fit(env).exported, work_dir=work_dir, program=program)


def _own_variables(facts: Facts, files: StepFiles) -> dict[str, str]:
    return {
        "REMUDA_OUTPUTS": str(files.outputs),
        "REMUDA_EXPORTS": str(files.exports),
        "REMUDA_MASKS": str(files.masks),
        MARK: facts.folder.name,
    }


def _make_mentioned(node: Node, files: StepFiles, inputs: Mapping[str, Any]) -> None:
    """Files that the step names itself exist before it starts, since its program need not know how to make them."""
    definition = node.definition
    words = (*node.entered.command, *map(str, map(reveal, node.entered.definition_env.values())))
    if definition.exec is None:
        words = tuple(map(str, reveal(list(inputs.values()))))
    frame = node.frame
    for one in (files, StepFiles(files.base.parent, frame.serial)):
        for path in (one.outputs, one.exports):
            if any(str(path) in word for word in words):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        if any(str(one.inputs) in word for word in words) and not one.inputs.exists():
            _write_inputs(one, inputs if one is files else frame.entered.inputs)


def _write_inputs(files: StepFiles, inputs: Mapping[str, Any]) -> None:
    _put(files.inputs, json.dumps(reveal(dict(inputs))).encode())


def _put(path: Path, data: bytes) -> None:
    """Write a file that an earlier agent may have written too, and that a process of it may be reading."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        write_whole(path, data)
        return
    with open(file, "wb", buffering=0) as opened:
        view = memoryview(data)
        while view:
            view = view[opened.write(view) :]


def _find(program: str, work_dir: str, path: str) -> None:
    """Say it in words where a command is not there, before a shell does."""
    if not os.path.isdir(work_dir):
        raise DefinitionError(f"work_dir {work_dir}: no such directory")
    if "/" in program:
        if not os.path.exists(os.path.join(work_dir, program)):
            raise DefinitionError(f'exec: "{program}": no such file or directory')
        return
    for folder in path.split(os.pathsep):
        if os.access(os.path.join(work_dir, folder, program), os.X_OK):
            return
    raise DefinitionError(f'exec: "{program}": executable file not found in $PATH')
