"""Whose rights the program of a step has on the machine: the agent's, or the job's. Pure.

Rights follow the origin. Some of our own steps do for a job what it must not do itself, such as talking to a container
engine; they have the agent's rights if the manager or a policy calls them, and never if a user's step does. What runs
in an environment has the rights with which that environment was opened, whatever its opening has written. So no file
that a job can reach decides about rights.

`policy.enforcement` asks for the user, sandbox and limits of a step, `launching` for its variables and files, `hold`
for a shell in the job.
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

    Every other program runs as the user and in the sandbox of the job, if it has any.
    """
    if node.host is None or _runs_outside(node):
        return _is_trusted(node)
    opener = opener_of(node)
    return opener is not None and opens_with_agents_rights(opener)


def opens_with_agents_rights(host: Node) -> bool:
    """True if our own program, with the agent's rights, runs the commands in this step's environment."""
    return _is_trusted(host) and exec_words(host)[:1] == (OWN,)


def opener_of(node: Node) -> Node | None:
    """The environment whose `exec` words are started on the machine for commands in the node's; None without one."""
    host = node.host
    while host is not None and host.host is not None and exec_words(host)[:1] != (OWN,):
        host = host.host
    return host


def exec_words(host: Node) -> tuple[str, ...]:
    """The words before a command that runs in an environment; empty if it cannot run any."""
    words = (host.environment or {}).get("exec")
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        return ()
    return tuple(words)


def is_own_program(node: Node) -> bool:
    """True if the step's command is one of our programs, which run on the machine in any environment."""
    return node.loaded is not None and node.loaded.is_program and node.entered.command[:1] == (OWN,)


def is_own(node: Node, names: Collection[str]) -> bool:
    """True if it is one of these steps of ours, or a phase of one."""
    return node.loaded is not None and is_own_name(node.loaded, names)


def is_own_name(loaded: Loaded, names: Collection[str]) -> bool:
    """Like `is_own`, for a step that has not begun yet."""
    return loaded.kind is ReferenceKind.BUILTIN and loaded.reference.partition("://")[2].partition("@")[0] in names


def runs_in_container(node: Node) -> bool:
    """True if the step's command runs in a container, no matter which step opened it. Our own programs never do."""
    if node.loaded is None or _runs_outside(node):
        return False
    host = node.host
    while host is not None and not is_own(host, ENGINE_CLIENTS):
        host = host.host
    return host is not None


def has_private_files(node: Node, *, is_job_apart: bool) -> bool:
    """True if the job cannot reach the inputs and outputs of a step.

    That is so for our own programs that were not called by a user, unless they run as the job's user or in its sandbox,
    where only the job's own files can be reached. `is_job_apart`: the job has such a user or sandbox.
    """
    return is_own_program(node) and node.call.origin != "user" and (not is_job_apart or _is_trusted(node))


def exchange_of(node: Node) -> str:
    """The folder for what a step reads and writes, unless that is private.

    An inserted step has one that the job's own steps cannot reach, because it may run with more rights than they do, or
    beside them. Inserted into a container of the job it has theirs, which is all that the container has.
    """
    insertion = node.insertion
    return INSERTED_EXCHANGE if insertion is not None and insertion.host is None else EXCHANGE


def find_exchange_files(job: Path, node: Node) -> StepFiles:
    """The files of a step in its exchange folder; `job` is the job's folder."""
    return StepFiles(job, node.serial, exchange_of(node))


def _runs_outside(node: Node) -> bool:
    """True for our own steps that are programs: they run on the machine in any environment."""
    return node.loaded is not None and node.loaded.is_program and not node.loaded.is_script


def _is_trusted(node: Node) -> bool:
    return is_own(node, TRUSTED) and node.call.origin != "user"
