"""A whole platform inside this process: a cell and a runner manager, which talk over loopback as they would anywhere.

Only the order of starting and stopping is decided here: cell, runner, manager; and back. The agent is started by the
manager but is a process of its own, which outlives it; who wants nothing left calls `close_agent` after the stop.
`remuda run` and `remuda up` are the callers.

Layout of the folder: `cell/` and `manager/` belong to the services, `client.json` holds the cell's address and the
administrator's token.
"""

import asyncio
import base64
import os
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from remuda.cell.service import CellService
from remuda.cell.settings import CellSettings
from remuda.cli.access import Access, store, stored
from remuda.cli.exits import CommandError
from remuda.manager.config import ManagerConfig
from remuda.manager.service import ManagerService
from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError, socket_of, unix_channel
from remuda.wire.user_client import UserClient

STOP_SECONDS = 10.0
"""How long a service may take to stop before it is cancelled."""
AGENT_SECONDS = 10.0
"""How long the agent may take to close its jobs and end."""
LOOK_SECONDS = 0.05
NO_PROXY = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A running cell and a user's way into it."""

    url: str
    token: str
    client: UserClient

    @property
    def authorization(self) -> str:
        """What git shows over HTTP."""
        return "Basic " + base64.b64encode(f"oauth2:{self.token}".encode()).decode()


def ensure_token(folder: Path, given: str | None = None) -> str:
    """The administrator's token of the platform in this folder; a new one is stored before any cell hears of it."""
    kept = stored(folder)
    token = given or (kept.token if kept else f"glpat-{secrets.token_urlsafe(24)}")
    if kept is None:
        store(folder, Access(url="", token=token))
    return token


@asynccontextmanager
async def serving_cell(settings: CellSettings) -> AsyncIterator[Cell]:
    """The cell, from the moment it serves; it stops when this is left."""
    assert settings.admin_token is not None
    ready, stop = asyncio.Event(), asyncio.Event()
    service = CellService(settings)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(service.run(stop, ready=lambda url: ready.set()), name="cell")
        try:
            await ready.wait()
            async with UserClient(service.settings.url, settings.admin_token) as client:
                yield Cell(url=service.settings.url, token=settings.admin_token, client=client)
        finally:
            await _stopped(task, stop)


@asynccontextmanager
async def managing(config: ManagerConfig | Path, data: Path, *, agent_idle_seconds: float) -> AsyncIterator[None]:
    """The runner manager, from the moment it asks for jobs; it stops when this is left, its agent goes on."""
    ready, stop = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        service = ManagerService(config, data, agent_idle_exit_seconds=agent_idle_seconds)
        task = group.create_task(service.run(stop, ready=ready.set), name="manager")
        try:
            await ready.wait()
            yield
        finally:
            await _stopped(task, stop)


async def _stopped(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Ask a service to stop; cancel it when it takes too long. Its own errors are the task group's."""
    stop.set()
    _, late = await asyncio.wait([task], timeout=STOP_SECONDS)
    for one in late:
        one.cancel()


def agent_data(manager_data: Path) -> Path:
    """Where the manager's local environment keeps its agent."""
    return manager_data / "agent"


async def agent_jobs(data: Path) -> frozenset[str]:
    """The jobs that the agent of a data folder keeps; none where no agent answers."""
    socket = socket_of(data)
    if socket is None:
        return frozenset()
    async with AgentClient(unix_channel(socket)) as client:
        with suppress(AgentUnavailableError, AgentRefusedError):
            return (await client.hello()).jobs
    return frozenset()


async def close_agent(data: Path) -> None:
    """End the agent of a data folder with everything that it still runs; one that is just starting too."""
    try:
        async with asyncio.timeout(AGENT_SECONDS):
            while True:
                if await _closed(data) or not _is_starting(data):
                    return
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise CommandError(f"the agent of {data} does not end; its folder stays for a look") from None


async def _closed(data: Path) -> bool:
    """Close the jobs of the agent that answers, then end it; False when none answers."""
    socket = socket_of(data)
    if socket is None:
        return False
    async with AgentClient(unix_channel(socket)) as client:
        try:
            hello = await client.hello()
            for job in hello.jobs:
                await client.close_job(job)
        except (AgentUnavailableError, AgentRefusedError):
            return False
        with suppress(ProcessLookupError):
            await _ended(hello.pid, signal.SIGTERM)
        return True


def _is_starting(data: Path) -> bool:
    """Whether an agent for this folder runs although it does not answer yet; its command line names the folder."""
    wanted = {os.fsencode(data), b"remuda.steps"}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if wanted <= set(process.read_bytes().split(b"\0")):
                return True
    return False


async def _ended(pid: int, number: signal.Signals) -> None:
    """Signal a process and wait until it is gone."""
    handle = os.pidfd_open(pid)
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    try:
        signal.pidfd_send_signal(handle, number)
        loop.add_reader(handle, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def keep_off_proxies(names: Sequence[str] = NO_PROXY) -> None:
    """Jobs reach the cell on loopback; no proxy of the user's environment can do that for them."""
    for variable in ("no_proxy", "NO_PROXY"):
        known = [name for name in os.environ.get(variable, "").split(",") if name]
        os.environ[variable] = ",".join(dict.fromkeys([*known, *names]))
