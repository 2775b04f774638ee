"""Conformance checks for environment plugins in any language. `remuda environment check` prints the results.

The checks follow the life of a real job, once for each protocol version that the plugin and Remuda have in common. Each
depends on those before it, so the first failure ends the checks of this version."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.environments.client import PluginClient
from remuda.environments.errors import ConfigurationError, LostError, PluginError, TemporaryError
from remuda.environments.handshake import HOOKS_AND_USAGE, VERSIONS
from remuda.environments.host import END_SECONDS, EnvironmentProcess
from remuda.environments.values import Folders, Place
from remuda.wire.agent_client import (
    AgentClient,
    AgentRefusedError,
    AgentUnavailableError,
    JobEnded,
    JobStart,
    LogChunk,
    UnknownJob,
)

SECONDS = 120.0
"""Time limit of a check; machines may have to be created."""
SOON_SECONDS = 10.0
KEY = "1-0123456789abcdef"
_STEPS = '{"spec": {"remuda": 1}}\n---\n{"run": [{"name": "script", "step": "builtin://script", "inputs": %s}]}'
_ERRORS = (LostError, TemporaryError, ConfigurationError, PluginError, AgentUnavailableError, AgentRefusedError)


class FailedError(Exception):
    """A conformance check failed; the text says what to change in the plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    problem: str = ""
    """Empty: passed."""


Check = tuple[str, Callable[["_Life"], Awaitable[None]]]


@dataclass
class _Life:
    """State of one run of the conformance checks: the plugin's process, and results that later checks use."""

    program: str
    config: dict[str, Any]
    folder: Path
    version: int
    said: list[str] = field(default_factory=list)
    process: EnvironmentProcess | None = None
    client: PluginClient | None = None
    capacity: int | None = None
    machine: str = ""
    folders: Folders | None = None
    agent_pid: int = 0
    place: Place = field(
        default_factory=lambda: Place(key=KEY, runner="check", slot=0, project="group/project", job=None)
    )

    async def start(self) -> None:
        self.process = EnvironmentProcess(self.program, versions=(self.version,), say=self.said.append)
        await self.process.start()
        self.client = PluginClient(self.process)

    @property
    def plugin(self) -> PluginClient:
        assert self.client is not None
        return self.client

    async def stop(self) -> bool:
        if self.client is not None:
            self.client.close()
            self.client = None
        return self.process is None or await self.process.close()

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[AgentClient]:
        client = AgentClient(await self.plugin.connect(self.machine))
        try:
            yield client
        finally:
            client.close()


async def check_plugin(program: str, config: dict[str, Any], folder: Path) -> AsyncIterator[Result]:
    """Run the checks on a plugin, for each protocol version that it has in common with Remuda, and yield the results. A
    failure ends the checks of a version. `folder`: where the plugin may store its state."""
    try:
        versions = await _versions(program)
    except PluginError as error:
        yield Result(name="handshake", problem=str(error))
        return
    yield Result(name="handshake")
    common = [version for version in VERSIONS if version in versions]
    for version in common:
        life = _Life(program=program, config=config, folder=folder / f"version-{version}", version=version)
        life.folder.mkdir(parents=True, exist_ok=True)
        try:
            async for result in _live(life):
                yield replace(result, name=f"{result.name} (version {version})")
        finally:
            await life.stop()
            _end_agent(life)


async def _versions(program: str) -> tuple[int, ...]:
    process = EnvironmentProcess(program, say=lambda _: None)
    try:
        await process.start()
        assert process.handshake is not None
        return process.handshake.versions
    finally:
        await process.close()


async def _live(life: _Life) -> AsyncIterator[Result]:
    for name, check in _CHECKS:
        if name in _NEWER and life.version < HOOKS_AND_USAGE:
            continue
        problem = ""
        try:
            async with asyncio.timeout(SECONDS):
                await check(life)
        except FailedError as error:
            problem = str(error)
        except _ERRORS as error:
            problem = str(error) or type(error).__name__
        except TimeoutError:
            problem = f"the check did not finish within {SECONDS:.0f} s"
        if problem and life.said:
            problem += f" (the plugin's last output: {life.said[-1]})"
        yield Result(name=name, problem=problem)
        if problem:
            return


def _end_agent(life: _Life) -> None:
    """Stop the check's agent if it runs on this machine, because its folder will be deleted."""
    with suppress(OSError):
        if life.agent_pid and os.fsencode(life.folder) in Path(f"/proc/{life.agent_pid}/cmdline").read_bytes():
            os.kill(life.agent_pid, signal.SIGTERM)


def _need(is_so: object, problem: str) -> None:
    if not is_so:
        raise FailedError(problem)


async def _open(life: _Life) -> None:
    await life.start()
    await life.plugin.open(life.config, version=life.version, folder=life.folder, runner="check")


async def _watch(life: _Life) -> None:
    try:
        async with asyncio.timeout(SOON_SECONDS):
            life.capacity = await anext(life.plugin.watch())
    except TimeoutError:
        raise FailedError(f"Watch has to answer at once with the capacity, not after {SOON_SECONDS:.0f} s") from None
    _need(life.capacity is None or life.capacity > 0, "the capacity is 0: the manager will never request a job")


async def _acquire(life: _Life) -> None:
    life.machine = await life.plugin.acquire(life.place)
    again = await life.plugin.acquire(life.place)
    _need(again == life.machine, f"the same key got {life.machine} and then {again}; it has to be the same machine")


async def _cancel(life: _Life) -> None:
    """Check that a cancelled Acquire call keeps no machine."""
    given_up = replace(life.place, key="2-given-up", slot=1)
    for _ in range(3):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await life.plugin.acquire(given_up)
        await life.plugin.clean_up(given_up, "")
    again = await life.plugin.acquire(life.place)
    _need(again == life.machine, "the job lost its machine when another call was cancelled")
    await life.plugin.clean_up(life.place, "")
    if life.capacity is not None:
        for number in range(life.capacity):
            await life.plugin.acquire(replace(life.place, key=f"{number + 3}-all", slot=number))
        for number in range(life.capacity):
            await life.plugin.clean_up(replace(life.place, key=f"{number + 3}-all", slot=number), "")
    life.machine = await life.plugin.acquire(life.place)


async def _prepare(life: _Life) -> None:
    folders = await life.plugin.prepare(life.place, life.machine)
    _need(
        folders.work_dir.startswith(folders.builds_dir.rstrip("/") + "/"),
        f"work_dir {folders.work_dir} has to be in builds_dir {folders.builds_dir}",
    )
    _need(await life.plugin.prepare(life.place, life.machine) == folders, "Prepare gave other folders the second time")
    life.folders = folders


async def _before(life: _Life) -> None:
    said = await life.plugin.before(replace(life.place, before_job="echo before of $REMUDA_JOB"), life.machine)
    _need("before of 1" in said, f"Before has to run before_job with REMUDA_JOB and give its output, not {said!r}")


async def _fail_in_hook(life: _Life) -> None:
    try:
        await life.plugin.before(replace(life.place, before_job="echo why; exit 3"), life.machine)
    except LostError as error:
        _need("why" in str(error), f"the message has to say what the command printed, not {error!s}")
    except TemporaryError as error:
        raise FailedError(f"a before_job that fails has to return FAILED_PRECONDITION: {error}") from None
    else:
        raise FailedError("a before_job that fails has to return FAILED_PRECONDITION")


async def _connect(life: _Life) -> None:
    async with life.agent() as first, life.agent() as second:
        pids = {(await first.hello()).pid, (await second.hello()).pid}
        life.agent_pid = min(pids)
    _need(len(pids) == 1, "two connections to one machine led to two agents; it has one agent for all jobs")


async def _unknown_machine(life: _Life) -> None:
    try:
        tunnel = await life.plugin.connect("there-is-no-such-machine")
    except LostError:
        return
    except TemporaryError as error:
        raise FailedError(f"Connect to an unknown machine has to return NOT_FOUND: {error}") from None
    tunnel.close()
    raise FailedError("Connect to an unknown machine has to return NOT_FOUND, not a connection")


async def _run_job(life: _Life) -> None:
    assert life.folders is not None
    steps = _STEPS % '{"script": ["echo it works > file", "cat file"]}'
    async with life.agent() as client:
        await client.start(JobStart(id=KEY, work_dir=life.folders.work_dir, steps=steps))
        log, status = await _follow(client)
    _need(status == "success", f"a job that writes into work_dir ended with {status}: {log[-300:]!r}")
    _need(b"it works" in log, f"the job's log is not what it printed: {log[-300:]!r}")


async def _follow(client: AgentClient) -> tuple[bytes, str]:
    log = b""
    async with client.watch() as watch:
        await watch.subscribe(KEY, log_offset=0, result_seq=1)
        async for event in watch:
            match event:
                case LogChunk(data=data):
                    log += data
                case JobEnded(status=status):
                    return log, status
                case UnknownJob():
                    break
    return log, "unknown status (the agent does not know the job any more)"


async def _recover(life: _Life) -> None:
    machines = await life.plugin.recover()
    _need(
        life.machine in machines, f"Recover has to name {life.machine}, whose agent keeps a job, not {list(machines)}"
    )


async def _usage(life: _Life) -> None:
    _need(await life.plugin.usage() > 0, "Usage has to say how many bytes are free")


async def _die(life: _Life) -> None:
    """Check that the machine and its jobs survive when the plugin is killed and restarted."""
    assert life.process is not None
    life.process.kill()
    await life.stop()
    await life.start()
    await life.plugin.open(life.config, version=life.version, folder=life.folder, runner="check")
    machines = await life.plugin.recover()
    _need(
        life.machine in machines,
        f"after a kill and a new start Recover has to name {life.machine}, not {list(machines)}",
    )
    await life.plugin.adopt(life.place, life.machine)
    again = await life.plugin.acquire(life.place)
    _need(again == life.machine, f"a job that was adopted with {life.machine} got {again}")
    async with life.agent() as client:
        _need(KEY in (await client.hello()).jobs, "the agent's jobs were gone after the plugin was killed")


async def _after(life: _Life) -> None:
    said = await life.plugin.after(replace(life.place, after_job="echo after"), life.machine)
    _need("after" in said, f"After has to run after_job and give its output, not {said!r}")


async def _clean_up(life: _Life) -> None:
    async with life.agent() as client:
        await client.close_job(KEY)
    for _ in range(2):
        await life.plugin.clean_up(life.place, life.machine)
    if life.capacity is not None:
        # All machines are available again.
        for number in range(life.capacity + 1):
            place = replace(life.place, key=f"{number + 3}-next")
            machine = await life.plugin.acquire(place)
            await life.plugin.clean_up(place, machine)


async def _end(life: _Life) -> None:
    if not await life.stop():
        raise FailedError(
            f"the plugin has to end within {END_SECONDS:.0f} s when its stdin is closed: it would outlive its manager"
        )


_CHECKS: tuple[Check, ...] = (
    ("open with the configuration", _open),
    ("capacity", _watch),
    ("the same machine for a repeated call", _acquire),
    ("a cancelled call keeps no machine", _cancel),
    ("folders for a job", _prepare),
    ("the command before a job", _before),
    ("a command before a job that fails", _fail_in_hook),
    ("one agent behind all connections", _connect),
    ("an unknown machine", _unknown_machine),
    ("a job runs", _run_job),
    ("machines with jobs are found", _recover),
    ("free disk space", _usage),
    ("killed and started again", _die),
    ("the command after a job", _after),
    ("cleaning up, twice", _clean_up),
    ("it ends with its host", _end),
)
_NEWER = frozenset(
    {
        "the command before a job",
        "a command before a job that fails",
        "free disk space",
        "the command after a job",
    }
)
"""Checks of calls that version 1 does not have."""
