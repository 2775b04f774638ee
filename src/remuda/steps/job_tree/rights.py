"""Decides with whose rights the program of a step runs on the machine: the agent's or the job's. Pure: no I/O.

The rights depend on who called the step: some built-in steps have the agent's rights if the manager or a policy calls
them, and never if a user's step does. A command in an environment has the rights with which that environment was
opened, whatever the opening step has written as outputs. So no file that a job can reach decides about rights."""

from collections.abc import Collection
from pathlib import Path

from remuda.steps.job_tree.tree import DELEGATE, Loaded, Node
from remuda.steps.language.values import ReferenceKind
from remuda.steps.process.step_files import EXCHANGE, INSERTED_EXCHANGE, StepFiles

OWN = "remuda-step"
"""First word of a command that is a built-in program."""
ENGINE_CLIENTS = frozenset({"container", "service", "service_stop"})
"""Built-in steps that only talk to a container engine. Limits apply to their containers, not to them."""
TRUSTED = ENGINE_CLIENTS | {"sign"}
"""Built-in steps that need the agent's rights, because a job must not reach what they use, such as a signing key."""


def has_agents_rights(node: Node) -> bool:
    """True if the step's program runs as the agent's user and outside of the job's sandbox. The program that delegates
    steps to another agent does; it starts the command that connects with the rights of the job."""
    if node.phase == DELEGATE:
        return True
    if node.host is None or _runs_outside(node):
        return _is_trusted(node)
    opener = opener_of(node)
    return opener is not None and opens_with_agents_rights(opener)


def opens_with_agents_rights(host: Node) -> bool:
    """True if a built-in program with the agent's rights starts the commands in the environment of the step `host`."""
    return _is_trusted(host) and exec_words(host)[:1] == (OWN,)


def opener_of(node: Node) -> Node | None:
    """Return the enclosing step whose environment decides how the node's command is started on the machine: the
    innermost that uses a built-in program, else the outermost. None if the node runs in no environment."""
    host = node.host
    while host is not None and host.host is not None and exec_words(host)[:1] != (OWN,):
        host = host.host
    return host


def exec_words(host: Node) -> tuple[str, ...]:
    """Return the words to put before a command so that it runs in the environment that the step `host` has opened
    (`exec` in its outputs); empty if that environment cannot run commands."""
    words = (host.environment or {}).get("exec")
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        return ()
    return tuple(words)


def is_own_program(node: Node) -> bool:
    """True if the step's command is a built-in program, which always runs on the machine, never in an environment."""
    return node.loaded is not None and node.loaded.is_program and node.entered.command[:1] == (OWN,)


def is_own(node: Node, names: Collection[str]) -> bool:
    """True if the node is a built-in step with one of these names, or opens or closes the environment of one."""
    return node.loaded is not None and is_own_name(node.loaded, names)


def is_own_name(loaded: Loaded, names: Collection[str]) -> bool:
    """True if `loaded` is a built-in step with one of these names."""
    return loaded.kind is ReferenceKind.BUILTIN and loaded.reference.partition("://")[2].partition("@")[0] in names


def runs_in_container(node: Node) -> bool:
    """True if the command runs in a container of a built-in step, also nested. False for built-in programs."""
    if node.loaded is None or _runs_outside(node):
        return False
    host = node.host
    while host is not None and not is_own(host, ENGINE_CLIENTS):
        host = host.host
    return host is not None


def has_private_files(node: Node, *, is_job_apart: bool) -> bool:
    """True if the job cannot reach the step's input and output files: for built-in programs that no user called, unless
    they run as the job's user or in its sandbox. `is_job_apart`: the job's steps have their own user or a sandbox."""
    return is_own_program(node) and node.call.origin != "user" and (not is_job_apart or _is_trusted(node))


def exchange_of(node: Node) -> str:
    """Return the name of the folder with a step's input, output and export files, unless `has_private_files`. On the
    machine, a step that a policy inserted has another folder, which the job's steps cannot reach, because it may have
    more rights. In a container it uses theirs, because the container has no other."""
    insertion = node.insertion
    return INSERTED_EXCHANGE if insertion is not None and insertion.host is None else EXCHANGE


def find_exchange_files(job: Path, node: Node) -> StepFiles:
    return StepFiles(job, node.serial, exchange_of(node))


def _runs_outside(node: Node) -> bool:
    return node.loaded is not None and node.loaded.is_program and not node.loaded.is_script


def _is_trusted(node: Node) -> bool:
    return is_own(node, TRUSTED) and node.call.origin != "user"
