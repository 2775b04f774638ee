"""Runs a cell (CI server) and a runner manager inside this process; they talk over loopback. `remuda up` runs both;
`remuda run` runs the manager here and the cell in a child process (`cell_process`). The manager starts an agent process
that outlives it; `local_agent` ends the agent. The data folder has `cell/`, `manager/` and `client.json`."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.localrun.client_file import Access, read_access, write_access
from remuda.localrun.containers import ContainerWish
from remuda.localrun.local_jobs import LocalJobs
from remuda.manager.config.docker import AUTO_HOST, POLICIES, DockerConfig
from remuda.manager.config.values import BY_JOB, CustomBuildDirConfig, ManagerConfig, RemudaConfig, RunnerConfig
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.process.service import ManagerService
from remuda.manager.process.supervision import ManagerOptions
from remuda.manager.registration.system_id import system_id
from remuda.model.runner import ANY_TAG
from remuda.wire.user_client import RefusedError, UserClient

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings

STOP_SECONDS = 10.0
"""How long a service may take to stop before it is cancelled."""
RUNNER_FILE = "runner.json"
"""File with the URL and the token of the runner of `remuda up`, in the format of `remuda.localrun.client_file`."""
KEEP_ALIVE_SECONDS = 2.0
"""A job without output learns within this time that it was canceled. The cell is local, so asking costs little."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A running cell, with a client that is logged in as administrator."""

    url: str
    token: str
    client: UserClient

    @property
    def authorization(self) -> str:
        """The value of the HTTP header Authorization for git access to the cell."""
        return "Basic " + base64.b64encode(f"oauth2:{self.token}".encode()).decode()


@asynccontextmanager
async def run_cell(settings: "CellSettings") -> AsyncIterator[Cell]:
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
            await _stop(task, stop)


def local_manager(
    name: str,
    *,
    url: str,
    token: str,
    concurrent: int,
    run_as: str,
    containers: ContainerWish,
    cache_dir: str = "",
    clone_url: str = "",
) -> ManagerConfig:
    """Return the configuration of a manager with one runner, which runs jobs directly on this machine or, as
    `containers` says, in containers. `run_as`: the user for jobs; '' for the current user. `clone_url`: where jobs
    clone from, if not from `url`."""
    runner = RunnerConfig(
        name=name,
        url=url,
        token=token,
        executor="docker" if containers.choice == "always" else "shell",
        docker=DockerConfig(
            host=AUTO_HOST,
            image=containers.image,
            pull_policy="if-not-present",
            allowed_pull_policies=POLICIES,
            # The images belong to the user: none is removed to make room.
            min_free_disk="0",
        ),
        request_concurrency=min(concurrent, 4),
        cache_dir=cache_dir,
        clone_url=clone_url,
        custom_build_dir=CustomBuildDirConfig(enabled=True),
        remuda=RemudaConfig(run_as=run_as, containers=BY_JOB if containers.choice == "auto" else ""),
    )
    return ManagerConfig(concurrent=concurrent, runners=(runner,))


@asynccontextmanager
async def run_manager(
    config: ManagerConfig,
    data: Path,
    environment: LocalEnvironment,
    *,
    recovers: bool = False,
    keep_builds: bool = False,
    on_job_over: Callable[[], None] = lambda: None,
    jobs: LocalJobs | None = None,
) -> AsyncIterator[None]:
    """Run a runner manager during the `async with` block; its agent, which `environment` starts, keeps running.
    `recovers`: take over the agent's jobs of an earlier manager whose journal (job records on disk) is lost.
    `keep_builds`: keep working directories of failed jobs. `on_job_over`: called when a job has ended.
    `jobs`: gets what the jobs name and log."""
    ready, stop = asyncio.Event(), asyncio.Event()
    options = ManagerOptions(
        keep_alive_seconds=KEEP_ALIVE_SECONDS, recovers=recovers, keep_builds=keep_builds, on_job_over=on_job_over
    )
    if jobs is not None:
        note_start = jobs.note_start
        options = msgspec.structs.replace(
            options,
            on_job_start=lambda job, payload: note_start(job, payload.image, payload.services),
            on_log=jobs.note_log,
        )
    async with asyncio.TaskGroup() as group:
        service = ManagerService(
            config,
            data,
            environment=environment,
            options=options,
        )
        task = group.create_task(service.run(stop, ready=ready.set), name="manager")
        try:
            await ready.wait()
            yield
        finally:
            await _stop(task, stop)


async def _stop(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    """Set `stop` and wait for the manager in `task`; cancel it after `STOP_SECONDS`. Its errors are not raised here."""
    stop.set()
    await asyncio.wait([task], timeout=STOP_SECONDS)
    if not task.done():
        task.cancel()


async def ensure_runner(client: UserClient, folder: Path, *, url: str, manager_data: Path, is_tagged: bool) -> str:
    """Return the token of the platform's runner, which is stored in `folder`. Creates a runner if none is stored, or if
    the cell does not know it. `is_tagged`: the runner takes jobs with tags, whatever these are."""
    access = read_access(folder, RUNNER_FILE)
    runner_id = await _find_runner(client, access.token, manager_data) if access is not None else None
    if access is None or runner_id is None:
        runner = await client.add_instance_runner("remuda up", tags=[ANY_TAG] if is_tagged else [])
        access = Access(url=url, token=runner.token)
        # So that a push at once does not say that the runner was never seen.
        await _find_runner(client, runner.token, manager_data)
    else:
        tags = await client.list_runner_tags(runner_id)
        if is_tagged != (ANY_TAG in tags):
            others = [tag for tag in tags if tag != ANY_TAG]
            await client.tag_runner(runner_id, [*others, ANY_TAG] if is_tagged else others)
    write_access(folder, Access(url=url, token=access.token), RUNNER_FILE)
    return access.token


async def _find_runner(client: UserClient, token: str, manager_data: Path) -> int | None:
    """Return the id of the runner with this token; None if the cell does not know it. For the cell this is a call of
    the manager. Its system id is sent, because a call without one counts as that of another manager."""
    manager_data.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = {"token": token, "system_id": system_id(manager_data)}
    try:
        answer = await client.call("POST", "/api/v4/runners/verify", body)
    except RefusedError:
        return None
    return int(answer["id"])
