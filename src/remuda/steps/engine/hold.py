"""Keeps the environments of a failed job for debugging: postpones its cleanup steps until the *hold* is over, the time
for which the request wants the environments kept.

Cleanup steps close an environment (such as a container) or stop services. A user's shell runs in the outermost open
environment (if several are outermost, in the one opened last). If the platform puts an environment around the job's own
steps, the shell runs in that or is refused, never on the machine. The job's container is paused until a user opens a
shell in it.

Files: `closings` has a JSON line for each postponed step (how to run it, and enter its environment), `held` the
exported variables. A step is stored here before the journal says it is finished. Running it twice does no harm."""

import asyncio
import json
import logging
import os
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.lib.files import read_whole_lines, write_whole
from remuda.steps.errors import AgentError
from remuda.steps.job_files.journal import Journal
from remuda.steps.job_tree.evaluation import Facts
from remuda.steps.job_tree.rights import OWN, exec_words, has_agents_rights, is_own, opens_with_agents_rights
from remuda.steps.job_tree.tree import CLOSE, DELEGATE, Node, State, Tree, confines_own_steps
from remuda.steps.language.values import ReferenceKind
from remuda.steps.pack.program import own_command
from remuda.steps.process.launch import Launch
from remuda.steps.process.marks import VARIABLE

CLOSING_SECONDS = 60.0
"""Least and default time limit of a postponed cleanup step."""
KILLED_SECONDS = 10.0
"""How long to wait for the end of a cleanup step that was killed."""
_STOPS = "builtin://service_stop@"
_CLOSINGS, _HELD = "closings", "held"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to run a command inside an environment of a job, such as a container."""

    prefix: tuple[str, ...] = ()
    """Words before a command; empty: the command runs on the machine itself."""
    order: str = ""
    """Path of the order file (`delegation.files`) of another agent that runs the steps; empty: this agent does."""
    has_agents_rights: bool = False
    """True if a built-in program with the agent's rights passes the command on, else a program of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Where and with which environment variables a user's shell runs, while the job's steps run or after them."""

    way: Way
    env: Mapping[str, str]
    """The environment of the command."""
    outer_env: Mapping[str, str]
    """The environment of the program that passes the command on into an environment."""
    work_dir: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    work_dir: str = "/"
    is_jobs: bool = False
    """True if the cleanup step runs as the user of the job's own steps, else as the agent's."""
    way: Way | None = None
    """How to enter the environment that the step closes; None if it closes none, or one inside of another."""
    seconds: float = CLOSING_SECONDS
    """Its time limit."""


def is_put_off(tree: Tree, node: Node) -> bool:
    """True if the step must be postponed so that a user can debug the job. It must close an environment or stop
    services, and not be inserted by a policy. A list of steps that contains it must have failed, or the job must have
    timed out. No enclosing step may have `retry`, and the job must not be cancelled."""
    loaded = node.loaded
    stops = loaded is not None and loaded.kind is ReferenceKind.BUILTIN and loaded.reference.startswith(_STOPS)
    if tree.cancelled or node.parent is None or node.is_inserted or not (node.phase == CLOSE or stops):
        return False
    around = list(node.parent.up())
    # A step that is tried again opens its environment again.
    is_final = not any(outer.call.retry is not None for outer in around if outer.parent is not None)
    return is_final and (tree.timed_out or any(outer.decisive is not None for outer in around))


def put_off(folder: Path, node: Node, launch: Launch, *, is_jobs: bool) -> None:
    """Store how to run a cleanup step after the hold. `is_jobs`: as the user of the job's steps, else the agent's."""
    host = node.parent if node.phase == CLOSE else None
    way = _find_way(host) if host is not None and host.host is None else None
    close_seconds = host.entered.inputs.get("close_seconds") if host is not None else None
    seconds = max(CLOSING_SECONDS, float(close_seconds)) if isinstance(close_seconds, int | float) else CLOSING_SECONDS
    closing = Closing(
        argv=launch.argv, env=launch.env, work_dir=launch.work_dir, is_jobs=is_jobs, way=way, seconds=seconds
    )
    _add(folder, closing)


def put_off_end(folder: Path, command: Sequence[str], order: Path) -> None:
    """Store a postponed cleanup step for steps that another agent runs (delegation): it makes that agent close the
    environments that it keeps for this job. Its command line is `command` and the path of a copy of `order`, the file
    that describes the delegated steps. Does nothing if it is stored already."""
    copy = order.with_name(f"held-{order.name}")
    if copy.exists():
        return
    _add(folder, Closing(argv=(*command, str(copy)), way=Way(order=str(copy))))
    # Last: the copy means that the line is stored, too.
    write_whole(copy, order.read_bytes())


def _add(folder: Path, closing: Closing) -> None:
    read_whole_lines(folder / _CLOSINGS)  # removes a last line cut by a crash, which would damage the new one
    with open(os.open(folder / _CLOSINGS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
        file.write(json.dumps(asdict(closing)).encode() + b"\n")


def closings(folder: Path) -> list[Closing]:
    """Read the postponed cleanup steps from the job's folder, in their original order. Skips damaged lines."""
    steps = []
    with suppress(FileNotFoundError):
        for line in (folder / _CLOSINGS).read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                try:
                    steps.append(_read_closing(json.loads(line)))
                except (ValueError, KeyError, TypeError, AttributeError):
                    # The other cleanup steps still have to run.
                    logger.error("cannot parse a line of %s: skipping a postponed cleanup step", folder / _CLOSINGS)
    return steps


def _read_closing(value: dict[str, Any]) -> Closing:
    way = value.pop("way")
    return Closing(**value | {"argv": tuple(value["argv"]), "way": None if way is None else _parse_way(way)})


def note_exports(folder: Path, exports: Mapping[str, str]) -> None:
    write_whole(folder / _HELD, json.dumps(dict(exports)).encode())


def way_now(tree: Tree, journal: Journal, *, is_inside: bool) -> Way:
    """Return how to enter the environment in which the job's own steps (those that the user wrote) run now; the machine
    itself if they run in none. `is_inside`: they never run on the machine itself. Raises AgentError if their
    environment is not open now, or while a step runs that a policy has inserted."""
    way: Way | None = None
    for node in tree.open.values():
        if node.is_inserted:
            raise AgentError(no_shell_beside(node))
        host = node.parent if node.phase == DELEGATE else node
        if host is None or host.host is not None or (is_inside and not confines_own_steps(host.call)):
            continue
        if node.phase == DELEGATE:
            way = Way(order=str(journal.step_files(node.serial).order))
        elif node.makes_environment:
            way = _find_way(node) or way
    if way is None and is_inside:
        hosts = [environment for environment in tree.root.children if confines_own_steps(environment.call)]
        names = ", ".join(environment.call.name for environment in hosts)
        if all(environment.state is State.FINISHED for environment in hosts):
            raise AgentError(f"the job's environment ({names}) is closed: its own steps are over")
        raise AgentError(f"the job's environment ({names}) is not open yet; try again when its own steps run")
    return way or Way()


def no_shell_beside(inserted: Node) -> str:
    """Return the refusal of shells while a step inserted by a policy runs, whose files a shell could change."""
    assert inserted.insertion is not None
    return (
        f'the step "{inserted.insertion.call.name}" of a policy runs, and no shell may run beside it; try again later'
    )


def way_held(folder: Path, *, is_inside: bool) -> Way:
    """Return how to enter the environment of a failed job that is kept for debugging; if there is none, the machine
    itself. `is_inside`: the job's steps never run on the machine itself, so AgentError is raised then instead."""
    way = next((closing.way for closing in reversed(closings(folder)) if closing.way is not None), None)
    if way is None and is_inside:
        raise AgentError(
            "there is nothing to look into: the job failed, and its environment was not opened, or could not be kept"
        )
    return way or Way()


def entrance(facts: Facts, way: Way, exports: Mapping[str, str]) -> Entrance:
    base = {} if way.prefix else dict(facts.base_env)
    env = base | dict(facts.request_env) | dict(exports) | {VARIABLE: facts.key}
    outer = dict(facts.agent_env if way.has_agents_rights else facts.base_env) | {VARIABLE: facts.key}
    return Entrance(way=way, env=env, outer_env=outer, work_dir=facts.work_dir)


def exports_held(folder: Path) -> dict[str, str]:
    try:
        exports: dict[str, str] = json.loads((folder / _HELD).read_bytes())
    except (OSError, ValueError):
        return {}
    return exports


def keeps_container(node: Node) -> bool:
    """True if the step would remove a container that the platform has started. It is paused while it is kept for
    debugging: its processes must not interfere with later steps, some of which have the agent's rights."""
    return node.phase == CLOSE and is_own(node, {"container"}) and has_agents_rights(node)


async def pause(launch: Launch) -> bool:
    """Pause the container that `launch` would remove. Returns False if that fails; OSError if it cannot start."""
    argv = (*own_command("step"), "container_pause")
    return await _run(argv, launch.env, launch.work_dir, CLOSING_SECONDS) == 0


async def close(closing: Closing, argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a postponed cleanup step by `argv`; ignore its exit code. Raises OSError or ValueError if it cannot start."""
    await _run(argv, env, closing.work_dir, closing.seconds)


async def _run(argv: Sequence[str], env: Mapping[str, str], work_dir: str, seconds: float) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=work_dir, env=dict(env), stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
    )
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):  # give up on a process that does not end
            async with asyncio.timeout(KILLED_SECONDS):
                await process.wait()
    return process.returncode


def _find_way(host: Node) -> Way | None:
    prefix = exec_words(host)
    is_ours = host.loaded is not None and host.loaded.kind is ReferenceKind.BUILTIN
    if not prefix or (prefix[0] == OWN and not is_ours):
        return None
    return Way(prefix=prefix, has_agents_rights=opens_with_agents_rights(host))


def _parse_way(value: Mapping[str, Any]) -> Way:
    return Way(
        prefix=tuple(value["prefix"]),
        order=value["order"],
        # Missing in files of an older agent.
        has_agents_rights=value.get("has_agents_rights") is True,
    )
