"""`remuda up`: runs cell and runner manager in this process, with persistent data (`remuda.localrun.embedded`).

The agent is a separate process, which keeps running while it has jobs. If the first start is interrupted, the next one
completes it."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.options import Containers, Data, DefaultImage, Isolate, NoContainers, check_containers, listen_address
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError
from remuda.localrun.containers import ContainerWish
from remuda.localrun.data_folder import data_folder, platform_folder
from remuda.localrun.isolation import Isolation, find_isolation, open_to_jobs, platform_places
from remuda.localrun.options import DEFAULT_IMAGE

if TYPE_CHECKING:
    from remuda.localrun.client_file import Access


def up(  # noqa: PLR0913 - one parameter an option
    *,
    data: Data = None,
    listen: Annotated[str, Parameter(help="HOST:PORT of the cell. Port 0 means any free port.")] = "127.0.0.1:8929",
    concurrent: Annotated[
        int | None, Parameter(help="Number of jobs at the same time [default: the number of cores, at least 2].")
    ] = None,
    isolation: Isolate = "auto",
    containers: Containers = "auto",
    no_containers: NoContainers = False,
    image: DefaultImage = DEFAULT_IMAGE,
    tagged: Annotated[
        bool, Parameter(help="Take jobs with tags, whatever these are. Otherwise only jobs without tags run here.")
    ] = True,
    open_pages: Annotated[
        bool, Parameter(name="--open", help="Open the web pages in a browser, signed in.", negative=())
    ] = False,
) -> None:
    """Start the whole platform on this machine: cell, runner manager and agent.

    Prints a link to the web pages, which signs you in once; `remuda open` creates another one. The first start creates
    an administrator's token, prints it once, and registers a runner. `remuda job` and the other
    commands for users find the cell without options, or with the same --data. Ctrl-C stops the platform. Running jobs
    continue, and the next start takes them over.

    Jobs that name an image or services run in containers of Docker or Podman; the engine may be started later. All
    other jobs run on this machine as your user, with your programs (see --containers). Jobs do not see the platform's
    own files, such as that token (see --isolation).

    Try:

        remuda up
        remuda up --open
        remuda up --concurrent 8 --no-containers
        remuda up --data ./platform --listen 127.0.0.1:9000
        remuda job list --data ./platform
    """
    if concurrent is not None and concurrent < 1:
        raise BadInputError(f"--concurrent {concurrent}: must be at least 1")
    check_containers(containers, no_containers=no_containers)
    host, port = listen_address(listen)
    folder = platform_folder(data_folder(data), "--data")
    means = find_isolation(isolation, folder)
    if (warning := means.warning()) is not None:
        print(f"remuda: {warning}", file=sys.stderr)
    wish = ContainerWish(choice="never" if no_containers else containers, image=image)
    wish.check(os.environ)
    event_loop.run(
        _up(
            folder,
            host,
            port,
            concurrent or max(2, len(os.sched_getaffinity(0))),
            means,
            wish,
            is_tagged=tagged,
            opens_pages=open_pages,
        )
    )


async def _up(
    folder: Path,
    host: str,
    port: int,
    concurrent: int,
    isolation: Isolation,
    wish: ContainerWish,
    *,
    is_tagged: bool,
    opens_pages: bool,
) -> None:
    from remuda.cli.access.pages import open_link
    from remuda.cli.cell.serve import print_token
    from remuda.cli.cell.settings import print_warnings, settings_from
    from remuda.lib.clock import SystemClock
    from remuda.lib.signals import STOPPING, handle_signals
    from remuda.localrun import local_agent
    from remuda.localrun.client_file import Access, ensure_token, read_access, write_access
    from remuda.localrun.embedded import ensure_runner, local_manager, run_cell, run_manager
    from remuda.localrun.startup import keep_off_proxies, manager_data
    from remuda.manager.environments.local import LocalEnvironment
    from remuda.steps.pack.program import IDLE_EXIT_SECONDS
    from remuda.telemetry import logs

    print_warnings(os.environ)
    logs.configure(level=os.environ.get("REMUDA_LOG_LEVEL", "warning"))
    stop = asyncio.Event()
    chosen_token = os.environ.get("REMUDA_ADMIN_TOKEN")
    access = read_access(folder)
    # The address is stored once the cell has served. Before that, the token was never printed.
    is_new = not chosen_token and (access is None or not access.url)
    keep_off_proxies()
    data = manager_data(folder)
    with handle_signals(dict.fromkeys(STOPPING, stop.set)):
        variables = {**os.environ, "REMUDA_ADMIN_TOKEN": ensure_token(folder, chosen_token)}
        settings = settings_from(variables, data=folder / "cell", host=host, port=port)
        if settings.tls_certificate is not None:
            raise BadInputError(
                "tls_certificate: `remuda up` serves no HTTPS; remove the setting, or run `remuda cell serve` and "
                "`remuda manager run` instead"
            )
        async with run_cell(settings) as cell:
            access = Access(url=cell.url, token=cell.token)
            write_access(folder, access)
            token = await ensure_runner(cell.client, folder, url=cell.url, manager_data=data, is_tagged=is_tagged)
            config = local_manager(
                "remuda up",
                url=cell.url,
                token=token,
                concurrent=concurrent,
                run_as=isolation.run_as,
                containers=wish,
            )
            hidden = platform_places(folder) if isolation.kind == "bubblewrap" else ()
            if isolation.run_as:
                open_to_jobs(folder)
            environment = LocalEnvironment(
                data, clock=SystemClock(), idle_exit_seconds=IDLE_EXIT_SECONDS, hidden=hidden
            )
            async with run_manager(config, data, environment, recovers=True):
                if is_new:
                    print_token(cell.token)
                link = await cell.client.create_sign_in_link() if settings.web.enabled else ""
                print(welcome(access, folder, concurrent, isolation, link), flush=True)
                if opens_pages:
                    await asyncio.to_thread(open_link, link)
                await stop.wait()
        running = await local_agent.end_if_idle(local_agent.data_of(data))
        if running:
            print(f"jobs that keep running until the next `remuda up` takes them over: {len(running)}", file=sys.stderr)


def welcome(access: "Access", folder: Path, concurrent: int, isolation: Isolation, link: str) -> str:
    """The text that `remuda up` prints when it serves. `link`: signs in to the web pages; empty: there are none."""
    from remuda.localrun.client_file import FILE_NAME
    from remuda.localrun.render.words import plural

    host = access.url.partition("://")[2]
    usual = _usual_access()
    choice = "" if usual == access else f" --data {shlex.quote(str(folder))}"
    other = f"\nWithout --data, commands call the cell at {usual.url}.\n" if usual and usual.url != access.url else ""
    pages = ""
    if link:
        pages = f"\nThis link opens the web pages and signs you in, once; remuda open{choice} makes another:\n"
        pages += f"\n    {link}\n"
    return f"""Remuda is up at {access.url}, {plural(concurrent, "job")} at a time, data in {folder}.
{_describe_isolation(isolation)}
{pages}
Push a repository with a .gitlab-ci.yml to it; TOKEN is the administrator's ({FILE_NAME} there):

    git push http://me:$TOKEN@{host}/root/shop.git HEAD

See what happens:

    remuda job list{choice}
    remuda job log NUMBER --follow{choice}
{other}
Ctrl-C stops it."""


def _usual_access() -> "Access | None":
    """Return the cell that commands call without options; None if they find none."""
    from remuda.cli.access.cell_address import CellAddress

    try:
        return CellAddress().find()
    except BadInputError:
        return None


def _describe_isolation(isolation: Isolation) -> str:
    match isolation.kind:
        case "bubblewrap":
            return "Jobs run as your user and do not see that folder (bubblewrap)."
        case "user":
            return f"Jobs run as user {isolation.run_as} and cannot read that folder."
        case _:
            return isolation.warning() or ""
