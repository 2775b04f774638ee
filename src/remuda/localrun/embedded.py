"""A whole platform inside this process: a cell and a runner manager, which talk over loopback as they would anywhere.

Only the order of starting and stopping is decided here: cell, runner, manager; and back. The agent is started by the
manager but is a process of its own, which outlives it; its end is in `local_agent`. `remuda up` is the caller, and
`remuda run`, whose cell is a process of its own, too (`cell_process`).

Layout of the folder: `cell/` and `manager/` belong to the services, `client.json` holds the cell's address and the
administrator's token.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.lib.clock import SystemClock
from remuda.manager.config.load import ManagerConfig
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.process.service import ManagerService
from remuda.wire.user_client import UserClient

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings

STOP_SECONDS = 10.0
"""How long a service may take to stop before it is cancelled."""
KEEP_ALIVE_SECONDS = 2.0
"""A silent job learns within this time that it was canceled; the cell is next door, so asking costs little."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A running cell and a user's way into it."""

    url: str
    token: str
    client: UserClient

    @property
    def authorization(self) -> str:
        """What git shows over HTTP."""
        return "Basic " + base64.b64encode(f"oauth2:{self.token}".encode()).decode()


@asynccontextmanager
async def serving_cell(settings: "CellSettings") -> AsyncIterator[Cell]:
    """The cell, from the moment it serves; it stops when this is left."""
    from remuda.cell.service import CellService

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
async def managing(
    config: ManagerConfig,
    data: Path,
    *,
    agent_idle_seconds: float,
    agent_pid: int | None = None,
    around_agent: Sequence[str] = (),
    hidden: Sequence[str] = (),
    recovers: bool = False,
    keep_builds: bool = False,
    on_job_over: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """The runner manager, from the moment it asks for jobs; it stops when this is left, its agent goes on.

    `agent_pid` is an agent that this process has started already, `around_agent` what stands before the command of
    another one, `hidden` what jobs must not see. `recovers`: jobs shall be found even without the journal.
    """
    environment = LocalEnvironment(
        data,
        clock=SystemClock(),
        idle_exit_seconds=agent_idle_seconds,
        agent_pid=agent_pid,
        around_agent=around_agent,
        hidden=hidden,
    )
    ready, stop = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        service = ManagerService(
            config,
            data,
            environment=environment,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            recovers=recovers,
            keep_builds=keep_builds,
            on_job_over=on_job_over,
        )
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
