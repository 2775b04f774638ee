"""Prepares the process of a step that begins: writes the step's files and determines its command line.

The process is the shell of a script, the command of a definition, or a built-in program (`remuda-step NAME`), which
runs on the machine itself. In an environment (such as a container) a file with the command is started with a prefix:
the words that the step that opened the environment has output as `exec`. Nested environments have nested prefixes.
Secrets are never arguments.

A job that is confined to a container must not influence what runs outside: only a few harmless variables of it reach
built-in programs, and its own steps may not run these programs."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.lib.files import write_all, write_whole
from remuda.lib.safe_paths import close_after, remove_tree
from remuda.steps.delegation.tree import WrapCommand, write_order
from remuda.steps.engine.script import script_command
from remuda.steps.errors import DefinitionError
from remuda.steps.job_files.job_packages import make_packages_folder, packages_folder
from remuda.steps.job_tree.evaluation import Facts, step_environment
from remuda.steps.job_tree.rights import (
    OWN,
    exchange_of,
    exec_words,
    find_exchange_files,
    has_agents_rights,
    is_own,
    is_own_program,
)
from remuda.steps.job_tree.sequence import GRACE_SECONDS
from remuda.steps.job_tree.tree import DELEGATE, Node, Tree
from remuda.steps.language.evaluate import reveal
from remuda.steps.language.values import ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.process.environment import PROXIES, SERVER_CA, fit
from remuda.steps.process.launch import Launch
from remuda.steps.process.marks import VARIABLE
from remuda.steps.process.step_files import EXCHANGE, StepFiles, make_empty, make_empty_folder
from remuda.steps.resolving.retrying import REGISTRY_LOGIN

LONG_GRACE_SECONDS = 15.0
"""Grace period of programs that first end processes in an environment or of another agent, then themselves."""
_READ = frozenset({"CI_JOB_ID", "CI_JOB_STATUS", "REMUDA_PATIENCE_SECONDS", SERVER_CA})
"""The job's variables that built-in programs get if the job is confined, besides those for proxies."""

_LONGEST_FIRST_LINE = 256
"""The kernel reads no more of a program's first line."""


def launch(tree: Tree, facts: Facts, node: Node, files: StepFiles, wrap: WrapCommand) -> Launch:
    """Write the files that a step's program reads; return how to start it. Raises DefinitionError if it cannot run.
    `wrap`: how to run a command of the job from a program with the agent's rights."""
    loaded, entered = node.loaded, node.entered
    assert loaded is not None
    os.makedirs(facts.work_dir, mode=0o700, exist_ok=True)
    if node.phase == DELEGATE:
        argv = own_command("delegate", str(write_order(tree, facts, node, files, wrap)))
        return Launch(argv=tuple(argv), env=dict(facts.base_env) | {VARIABLE: facts.key}, work_dir=facts.work_dir)
    env = step_environment(tree, facts, node)
    if node.insertion is not None:
        _make_home(node, node.insertion, facts.folder)
    host = node.host
    if is_own_program(node):
        _refuse_outside(node)
        _write_inputs(files, entered.inputs)
        own = _own_variables(facts, files) | {"REMUDA_INPUTS": str(files.inputs)}
        make_empty_folder(files.temporary)
        # Secrets are for the job's steps, even if an inserted step fetches them.
        exchange = EXCHANGE if is_own(node, {"secrets"}) else exchange_of(node)
        own |= {"REMUDA_EXCHANGE": str(facts.folder / exchange), "REMUDA_TEMPORARY": str(files.temporary)}
        if node.phase:
            assert node.parent is not None
            own["REMUDA_ENVIRONMENT"] = f"{facts.key}{node.parent.path}/{node.parent.attempt}"
            own["REMUDA_PACKAGES"] = json.dumps(_list_packages(facts, node, exchange))
        return _launch_program(entered.command[1:], _machine_env(facts, node, env) | own, facts.work_dir)
    env |= _own_variables(facts, files)
    _create_mentioned_files(node, files, find_exchange_files(facts.folder, node.frame), entered.inputs)
    fitting = fit(env)
    if host is not None:
        command, large = list(entered.command), fitting.too_large if loaded.is_script else {}
        if loaded.is_script:
            command, text = script_command(reveal(dict(entered.inputs)), files.script, path=None, variables=large)
            _write_file(files.script, text.encode("utf-8", "surrogateescape"))
        # `step` and `script` are for programs that do not see our files.
        request = {"command": command, "work_dir": entered.work_dir, "env": dict(fitting.exported)}
        request |= {"step": node.call.name} | ({"script": str(files.script)} if loaded.is_script else {})
        started = _launch_inside(facts, host, request, _base_env(facts, node) | {VARIABLE: facts.key}, files)
        return replace(started, only_for_shells=tuple(sorted(large)))
    if loaded.is_script:
        path = fitting.exported.get("PATH", "")
        argv, text = script_command(reveal(dict(entered.inputs)), files.script, path=path, variables=fitting.too_large)
        _write_file(files.script, text.encode("utf-8", "surrogateescape"))
        names = tuple(sorted(fitting.too_large))
        return Launch(
            argv=tuple(argv),
            env=fitting.exported,
            work_dir=entered.work_dir,
            only_for_shells=names,
            piped=True,
        )
    _check_program(entered.command[0], entered.work_dir, env.get("PATH", ""))
    return Launch(argv=entered.command, env=fitting.exported, work_dir=entered.work_dir, piped=True)


def grace_seconds(node: Node) -> float:
    """Seconds between SIGTERM and SIGKILL when a step is ended."""
    if node.phase == DELEGATE:
        return LONG_GRACE_SECONDS
    usual = GRACE_SECONDS if node.host is None or is_own_program(node) else LONG_GRACE_SECONDS
    # Only an environment of ours may say how long its commands take to end.
    environment = node.parent if node.phase else node.host
    if environment is None or environment.call.origin == "user" or not _is_ours(environment):
        return usual
    return max(usual, float(reveal(environment.entered.inputs.get("grace_seconds", 0))))


def is_report_trusted(node: Node) -> bool:
    """True if the step's command runs in an environment that a built-in step opens and the platform, not the user, has
    configured. Only then a built-in program is believed that reports a failure of the platform."""
    host = node.host
    return host is not None and _is_ours(host) and not host.is_users


def _is_ours(host: Node) -> bool:
    return host.loaded is not None and host.loaded.kind is ReferenceKind.BUILTIN


def _refuse_outside(node: Node) -> None:
    """Raise DefinitionError if a user's step calls a built-in program while it is in an environment of the platform,
    such as the job's container: the program would run outside of it. `checkout` is refused there whoever calls it,
    because through the repository the job could make git run programs with the agent's rights."""
    assert node.loaded is not None
    host = node.host
    while host is not None:
        if host.call.origin != "user" and (node.call.origin == "user" or is_own(node, {"checkout"})):
            name = node.loaded.reference.partition("@")[0]
            raise DefinitionError(f"{name} runs on the runner's machine, outside of the job's environment {host.path}")
        host = host.host


def _list_packages(facts: Facts, node: Node, exchange: str) -> list[str]:
    """Return the folders with files of steps that an environment opened by `node` has to show: the one with packages of
    this job, which is created here, and those of the steps around, whose expressions may refer to their own folder."""
    folder = packages_folder(facts.folder, exchange)
    make_packages_folder(folder)
    around = [outer.loaded for outer in node.up() if outer.loaded is not None and outer.loaded.is_fetched]
    roots = [loaded.root for loaded in around if loaded.root is not None and not loaded.visible_folder]
    return list(dict.fromkeys([str(folder), *roots]))


def _make_home(node: Node, insertion: Node, job: Path) -> None:
    """Create an empty home directory for `insertion`, a step that a policy has inserted, if `node` is its first
    command. Removes what the job may have put at that path. `job`: the job's folder."""
    home = find_exchange_files(job, insertion).home
    home.parent.mkdir(mode=0o700, exist_ok=True)
    while node is not insertion and node.index == 0 and node.parent is not None:
        node = node.parent
    if node is insertion:
        with suppress(FileNotFoundError):
            os.unlink(home) if home.is_symlink() or not home.is_dir() else remove_tree(home)
        home.mkdir(mode=0o700)


def _machine_env(facts: Facts, node: Node, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a built-in program. In a confined job (container, other user, sandbox) it has only
    those of `env` that the program reads, none that could make it run another program or use another configuration."""
    if facts.is_confined:
        is_agents = has_agents_rights(node)
        names = _READ | _names_asked_for(node) | ({"HOME"} if node.is_inserted and not is_agents else set())
        env = {name: env[name] for name in env if name in names or name.lower() in PROXIES}
        if not node.is_inserted and (is_agents or not facts.is_apart):
            env.pop(SERVER_CA, None)
            env |= {name: path for name, path in facts.authorities.items() if name == SERVER_CA}
    return _base_env(facts, node) | dict(env)


def _names_asked_for(node: Node) -> set[str]:
    """Return the names of variables that the inputs of the built-in step `secrets` refer to, and those with the login
    for `function/oci/publish`; empty for other steps. The program gets these variables even if the job is confined: it
    starts no other program, so they do no harm."""
    if is_own(node, {"function/oci/publish"}):
        return {"DOCKER_AUTH_CONFIG", "CI_REGISTRY", *REGISTRY_LOGIN}
    secrets = reveal(node.entered.inputs.get("secrets")) if is_own(node, {"secrets"}) else None
    sources = [secret.get("environment") for secret in secrets.values() if isinstance(secret, dict)] if secrets else []
    return {str(source.get("name")) for source in sources if isinstance(source, dict)}


def _base_env(facts: Facts, node: Node) -> dict[str, str]:
    """Return the machine's variables for a step: the agent's own if it has the agent's rights, else the job user's."""
    return dict(facts.agent_env if has_agents_rights(node) else facts.base_env)


def _launch_inside(
    facts: Facts,
    host: Node,
    request: Mapping[str, Any],
    own_env: Mapping[str, str],
    files: StepFiles,
    level: int = 0,
) -> Launch:
    """Return how to start a command in the environment that the step `host` has opened. `request` (command, work_dir,
    env) is written to a file for the program that runs the command there. That program itself gets the variables
    `own_env`. `level`: 0 for the innermost environment, 1 for the one around it, and so on."""
    prefix = exec_words(host)
    if not prefix:
        raise DefinitionError(f'the environment of {host.path} cannot run commands: its "exec" is no list of words')
    file = files.command(level)
    _write_file(file, json.dumps(request).encode())
    words = (*prefix, str(file))
    if prefix[0] == OWN:
        if not _is_ours(host):
            raise DefinitionError(
                f"the environment of {host.path} uses a program of the agent, but does not come with the agent"
            )
        return _launch_program(words[1:], dict(own_env) | {"REMUDA_FAILURE": str(files.failure)}, facts.work_dir)
    if host.host is not None:
        outer = {"command": list(words), "work_dir": facts.work_dir, "env": {}}
        return _launch_inside(facts, host.host, outer, own_env, files, level + 1)
    return Launch(argv=words, env=own_env, work_dir=facts.work_dir, piped=True)


def _launch_program(program: tuple[str, ...], env: Mapping[str, str], work_dir: str) -> Launch:
    argv = (*own_command("step"), *program)
    return Launch(argv=argv, env=fit(env).exported, work_dir=work_dir, program=program)


def _own_variables(facts: Facts, files: StepFiles) -> dict[str, str]:
    return {
        "REMUDA_OUTPUTS": files.shared_path(".outputs"),
        "REMUDA_EXPORTS": files.shared_path(".exports"),
        "REMUDA_MASKS": files.shared_path(".masks"),
        VARIABLE: facts.key,
    }


def _create_mentioned_files(node: Node, files: StepFiles, around: StepFiles, inputs: Mapping[str, Any]) -> None:
    """Create the output, export and input files whose paths occur in the step's command or variables (for a script: in
    its inputs), because programs may expect that they exist. `files`: those of this step. `around`: those of the step
    whose list contains this one."""
    definition, folders = node.definition, {owner.shared_path("").rpartition("/")[0] for owner in (files, around)}
    words: tuple[str, ...] = (*node.entered.command, *map(str, map(reveal, node.entered.definition_env.values())))
    if definition.exec is None:
        words = tuple(map(str, reveal(list(inputs.values()))))
    if not any(folder in word for folder in folders for word in words):
        return
    for owner in (files, around):
        for path in (owner.outputs, owner.exports):
            if any(str(path) in word for word in words):
                make_empty(path)
        if any(str(owner.inputs) in word for word in words) and not owner.inputs.exists():
            _write_inputs(owner, inputs if owner is files else node.frame.entered.inputs)


def _write_inputs(files: StepFiles, inputs: Mapping[str, Any]) -> None:
    _write_file(files.inputs, json.dumps(reveal(dict(inputs))).encode())


def _write_file(path: Path, data: bytes) -> None:
    """Write a file. An existing one is replaced atomically, because it may be in use. Raises DefinitionError if the job
    has put a folder there."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Written where no step can write, and renamed over whatever a step has put there.
        aside = path.parent.with_name(f"{path.name}.new")
        write_whole(aside, data)
        try:
            aside.rename(path)
        except IsADirectoryError:
            aside.unlink()
            raise DefinitionError(
                f"{path.name}: it has to be a plain file; the job has put something else there"
            ) from None
        return
    with close_after(file):
        write_all(file, data)


def _check_program(program: str, work_dir: str, path: str) -> None:
    """Raise DefinitionError if program or working directory does not exist, with a better message than the shell's.
    `path`: the PATH in which to search."""
    if not os.path.isdir(work_dir):
        raise DefinitionError(f"work_dir {work_dir}: no such directory")
    if not program:
        raise DefinitionError('exec: "": a command needs a name')
    if "/" in program:
        path_of_program = os.path.join(work_dir, program)
        if not os.path.exists(path_of_program):
            raise DefinitionError(f'exec: "{program}": no such file or directory')
        if os.path.isdir(path_of_program):
            raise DefinitionError(f'exec: "{program}": this is a folder, no program')
        _check_executable(program, path_of_program)
        return
    for folder in path.split(os.pathsep):
        if os.access(os.path.join(work_dir, folder, program), os.X_OK):
            return
    raise DefinitionError(f'exec: "{program}": executable file not found in $PATH')


def _check_executable(program: str, path: str) -> None:
    """Raise DefinitionError if the file `path` has no execute bit, or names an interpreter that does not exist."""
    with suppress(OSError):  # another user than the agent's may be allowed to run it
        if not os.stat(path).st_mode & 0o111:
            raise DefinitionError(f'exec: "{program}": permission denied: no execute bit is set')
        with open(path, "rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
        words = os.fsdecode(first.removeprefix(b"#!")).split() if first.startswith(b"#!") else []
        if words and os.path.isabs(words[0]) and not os.path.exists(words[0]):
            raise DefinitionError(f'exec: "{program}": its interpreter {words[0]} does not exist')
