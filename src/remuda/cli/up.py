"""`remuda up`: the whole platform in this process, on data that stays.

Decided here: what a first start makes (a token, a runner) and what the user is told. Every step may be repeated: a
start that was cut off is made whole by the next one. What the platform consists of is in `embedded`.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.exits import BadInputError
from remuda.cli.options import Data, Isolate, data_folder, listen_address, platform_folder
from remuda.localrun.isolation import Isolation, find_isolation, open_to_jobs, platform_places

if TYPE_CHECKING:
    from remuda.localrun.embedded import Cell
    from remuda.manager.config.load import ManagerConfig

FILE_NAME = "client.json"
RUNNER_FILE = "runner.json"
"""The platform's own runner, as `remuda.cli.cell_access` stores an address with a token."""


def up(
    *,
    data: Data = None,
    listen: Annotated[str, Parameter(help="HOST:PORT of the cell; port 0 picks a free one.")] = "127.0.0.1:8929",
    concurrent: Annotated[
        int | None, Parameter(help="Jobs at the same time [default: the number of cores, at least 2].")
    ] = None,
    isolation: Isolate = "auto",
) -> None:
    """Start the whole platform on this machine: cell, runner manager and agent.

    The first start makes an administrator's token, prints it once, and registers a runner. `remuda job` finds the cell
    without further options. Ctrl-C stops the platform; jobs that run go on, and the next start finds them.

    Jobs run on this machine as your user, with your programs, but without the platform's own files, such as that token
    (see --isolation).

    Try:

        remuda up
        remuda up --data ./platform --listen 127.0.0.1:9000 --concurrent 8
        remuda job list
    """
    if concurrent is not None and concurrent < 1:
        raise BadInputError(f"--concurrent {concurrent}: at least 1")
    host, port = listen_address(listen)
    folder = platform_folder(data_folder(data), "--data")
    found = find_isolation(isolation, folder)
    if (warning := found.warning()) is not None:
        print(f"remuda: {warning}", file=sys.stderr)
    asyncio.run(_up(folder, host, port, concurrent or max(2, len(os.sched_getaffinity(0))), found))


async def _up(folder: Path, host: str, port: int, concurrent: int, isolation: Isolation) -> None:
    from remuda.cli.cell.serve import print_token
    from remuda.cli.cell.settings import print_warnings, settings_from
    from remuda.cli.cell_access import Access, ensure_token, store, stored
    from remuda.cli.signals import STOPPING, handled
    from remuda.localrun import local_agent
    from remuda.localrun.embedded import managing, serving_cell
    from remuda.localrun.startup import keep_off_proxies
    from remuda.steps.pack.program import IDLE_EXIT_SECONDS
    from remuda.telemetry import logs

    print_warnings(os.environ)
    logs.configure(level=os.environ.get("REMUDA_LOG_LEVEL", "warning"))
    stop = asyncio.Event()
    given = os.environ.get("REMUDA_ADMIN_TOKEN")
    kept = stored(folder)
    # The address is stored once the cell has served: before that, nobody has been told the token.
    is_new = not given and (kept is None or not kept.url)
    keep_off_proxies()
    with handled(dict.fromkeys(STOPPING, stop.set)):
        environment = {**os.environ, "REMUDA_ADMIN_TOKEN": ensure_token(folder, given)}
        async with serving_cell(settings_from(environment, data=folder / "cell", host=host, port=port)) as cell:
            store(folder, Access(url=cell.url, token=cell.token))
            config = await _configured(cell, folder, concurrent, isolation.run_as)
            hidden = platform_places(folder) if isolation.kind == "bubblewrap" else ()
            if isolation.run_as:
                open_to_jobs(folder)
            async with managing(
                config, folder / "manager", agent_idle_seconds=IDLE_EXIT_SECONDS, hidden=hidden, recovers=True
            ):
                if is_new:
                    print_token(cell.token)
                print(welcome(cell.url, folder, concurrent, isolation), flush=True)
                await stop.wait()
        left = await local_agent.end_if_idle(local_agent.data_of(folder / "manager"))
        if left:
            print(f"jobs that go on, for the next `remuda up` to take over: {len(left)}", file=sys.stderr)


async def _configured(cell: "Cell", folder: Path, concurrent: int, run_as: str) -> "ManagerConfig":
    """The manager's configuration. The runner is made once, and again where the cell does not know it any more."""
    from remuda.cli.cell_access import Access, store, stored
    from remuda.manager.config.load import CustomBuildDirConfig, ManagerConfig, RemudaConfig, RunnerConfig
    from remuda.wire.user_client import RefusedError

    kept = stored(folder, RUNNER_FILE)
    if kept is not None:
        try:
            await cell.client.call("POST", "/api/v4/runners/verify", {"token": kept.token})
        except RefusedError:
            kept = None
    token = kept.token if kept else await cell.client.create_instance_runner("remuda up")
    store(folder, Access(url=cell.url, token=token), RUNNER_FILE)
    runner = RunnerConfig(
        name="remuda up",
        url=cell.url,
        token=token,
        executor="shell",
        request_concurrency=min(concurrent, 4),
        custom_build_dir=CustomBuildDirConfig(enabled=True),
        remuda=RemudaConfig(run_as=run_as),
    )
    return ManagerConfig(concurrent=concurrent, runners=(runner,))


def welcome(url: str, folder: Path, concurrent: int, isolation: Isolation) -> str:
    """Where the platform is, and what to do with it."""
    from remuda.localrun.report import counted

    host = url.partition("://")[2]
    return f"""Remuda is up at {url}, {counted(concurrent, "job")} at a time, data in {folder}.
{_describe_isolation(isolation)}

Push a repository with a .gitlab-ci.yml to it; TOKEN is the administrator's ({FILE_NAME} there):

    git push http://me:$TOKEN@{host}/root/shop.git HEAD

See what happens:

    remuda job list
    remuda job log NUMBER --follow

Ctrl-C stops it."""


def _describe_isolation(isolation: Isolation) -> str:
    """Say how jobs are kept from the folder, or that they are not."""
    match isolation.kind:
        case "bubblewrap":
            return "Jobs run as your user and do not see that folder (bubblewrap)."
        case "user":
            return f"Jobs run as user {isolation.run_as} and cannot read that folder."
        case _:
            return isolation.warning() or ""
