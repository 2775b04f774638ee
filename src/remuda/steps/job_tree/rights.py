"""Decides with whose rights the program of a step runs on the machine: the agent's or the job's. Pure: no I/O.

The rights depend on who called the step. Some built-in steps do for a job what the job itself must not do, such as
talking to a container engine; they have the agent's rights if the manager or a policy calls them, and never if a user's
step does. A command in an environment has the rights with which that environment was opened, whatever the opening step
has written as outputs. So no file that a job can reach decides about rights.

`policy.enforcement` uses this module for the user, sandbox and limits of a step, `launching` for its variables and
files, `hold` for a shell in the job.
"""

from collections.abc import Collection
from pathlib import Path

from remuda.steps.job_tree.tree import Loaded, Node
from remuda.steps.language.values import ReferenceKind
from remuda.steps.process.step_files import EXCHANGE, INSERTED_EXCHANGE, StepFiles

OWN = "remuda-step"
"""First word of a command that is one of our own programs."""
ENGINE_CLIENTS = frozenset({"container", "service", "service_stop"})
"""Our own steps that only talk to a container engine. Limits apply to their containers, not to them."""
TRUSTED = ENGINE_CLIENTS | {"sign"}
"""Our own steps that need the agent's rights for what a job must not reach."""


def has_agents_rights(node: Node) -> bool:
    """True if the step's program runs as the agent's user and outside of the job's sandbox.

    All other programs run as the job's user and in the job's sandbox, where these are configured.
    """
    if node.host is None or _runs_outside(node):
        return _is_trusted(node)
    opener = opener_of(node)
    return opener is not None and opens_with_agents_rights(opener)


def opens_with_agents_rights(host: Node) -> bool:
    """True if commands in the environment that `host` has opened are started by a built-in program with the agent's
    rights."""
    return _is_trusted(host) and exec_words(host)[:1] == (OWN,)


def opener_of(node: Node) -> Node | None:
    """Return the step whose `exec` words the machine starts to run a command in the node's environment: the innermost
    enclosing environment with a built-in program, else the outermost one. None if the node runs on the machine
    itself."""
    host = node.host
    while host is not None and host.host is not None and exec_words(host)[:1] != (OWN,):
        host = host.host
    return host


def exec_words(host: Node) -> tuple[str, ...]:
    """Return the words to put before a command so that it runs in the environment that `host` has opened; empty if the
    environment cannot run commands."""
    words = (host.environment or {}).get("exec")
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        return ()
    return tuple(words)


def is_own_program(node: Node) -> bool:
    """True if the step's command is a built-in program, which always runs on the machine and not in an environment."""
    return node.loaded is not None and node.loaded.is_program and node.entered.command[:1] == (OWN,)


def is_own(node: Node, names: Collection[str]) -> bool:
    """True if the node is a built-in step with one of these names, or opens or closes the environment of such a
    step."""
    return node.loaded is not None and is_own_name(node.loaded, names)


def is_own_name(loaded: Loaded, names: Collection[str]) -> bool:
    """True if a resolved step is a built-in step with one of these names. Like `is_own`, for a step that has not begun
    yet."""
    return loaded.kind is ReferenceKind.BUILTIN and loaded.reference.partition("://")[2].partition("@")[0] in names


def runs_in_container(node: Node) -> bool:
    """True if the step's command runs in a container, no matter which step opened it. Built-in programs never do."""
    if node.loaded is None or _runs_outside(node):
        return False
    host = node.host
    while host is not None and not is_own(host, ENGINE_CLIENTS):
        host = host.host
    return host is not None


def has_private_files(node: Node, *, is_job_apart: bool) -> bool:
    """True if the job cannot reach the files with the inputs and outputs of a step.

    These are private for built-in programs that no user called, unless they run as the job's user or in its sandbox,
    from where only the job's own files can be reached. `is_job_apart`: the job has a user or sandbox of its own.
    """
    return is_own_program(node) and node.call.origin != "user" and (not is_job_apart or _is_trusted(node))


def exchange_of(node: Node) -> str:
    """Return the name of the exchange folder that holds a step's input, output and export files, if they are not
    private.

    An inserted step has a folder that the job's own steps cannot reach, because it may run with more rights than they
    do, or at the same time. If it runs in a container of the job it uses the folder of the job's steps, because the
    container has only that one.
    """
    insertion = node.insertion
    return INSERTED_EXCHANGE if insertion is not None and insertion.host is None else EXCHANGE


def find_exchange_files(job: Path, node: Node) -> StepFiles:
    """Return the files of a step in its exchange folder. `job` is the job's folder."""
    return StepFiles(job, node.serial, exchange_of(node))


def _runs_outside(node: Node) -> bool:
    """True if the step is a built-in program, which runs on the machine even inside of an environment."""
    return node.loaded is not None and node.loaded.is_program and not node.loaded.is_script


def _is_trusted(node: Node) -> bool:
    return is_own(node, TRUSTED) and node.call.origin != "user"
