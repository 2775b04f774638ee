"""`remuda manager`: the runner manager as a process of its own, and adding runners to its configuration."""

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.access import check_token
from remuda.cli.exits import BadInputError
from remuda.cli.options import data_folder

Config = Annotated[Path, Parameter(help="gitlab-runner's config.toml.")]


def run(
    *,
    config: Config,
    data: Annotated[
        Path | None,
        Parameter(
            help="Folder for journal, agent and builds [default: one per configuration in the user's data folder]."
        ),
    ] = None,
) -> None:
    """Take jobs from the servers of a configuration file and run them on this machine.

    SIGTERM and Ctrl-C stop it at once: running jobs go on, and the next start finds them. SIGQUIT drains: no new jobs,
    running ones are waited for (`shutdown_timeout`).

    Try:

        remuda manager run --config config.toml
        remuda manager run --config config.toml --data /var/lib/remuda-manager
    """
    asyncio.run(_run(config, data.absolute() if data else _default_data(config)))


def register(
    *,
    url: Annotated[str, Parameter(help="Address of the cell or GitLab server.")],
    token: Annotated[str, Parameter(help="A runner's glrt- token, or a registration token.")],
    config: Config,
    executor: Annotated[str, Parameter(help="shell, or docker: jobs run in containers.")] = "shell",
    name: Annotated[str, Parameter(help="The runner's name [default: this machine's].")] = "",
) -> None:
    """Add a runner to a configuration file, after the server has confirmed its token.

    The token belongs to a runner that was created on the server (POST /api/v4/user/runners, or a page of GitLab's);
    a registration token makes a new runner.

    Try:

        remuda manager register --url http://127.0.0.1:8929 --token glrt-... --executor shell --config config.toml
    """
    from remuda.manager.register import Registration
    from remuda.manager.register import register as register_runner

    if not token:
        raise BadInputError("--token is empty; create a runner on the server and give its glrt- token")
    check_token(token, "--token")
    wanted = Registration(url=url, token=token, executor=executor, name=name)
    number = asyncio.run(register_runner(config.absolute(), wanted))
    print(f"runner {number} of {url} is in {config}; start it with: remuda manager run --config {config}")


def _default_data(config: Path) -> Path:
    """Two configurations never share a folder."""
    place = hashlib.sha256(str(config.resolve()).encode()).hexdigest()[:12]
    return data_folder(None) / "managers" / place


async def _run(config: Path, data: Path) -> None:
    import signal

    from remuda.cli.signals import STOPPING, handled
    from remuda.manager.config import LOG_FORMATS, LOG_LEVELS, load
    from remuda.manager.service import ManagerService
    from remuda.telemetry import logs

    loaded = load(config)
    logs.configure(
        level=LOG_LEVELS[loaded.config.log_level], log_format=LOG_FORMATS[loaded.config.log_format], stream=sys.stderr
    )
    stop, drain = asyncio.Event(), asyncio.Event()
    service = ManagerService(config, data)
    with handled({**dict.fromkeys(STOPPING, stop.set), signal.SIGQUIT: drain.set}):
        await service.run(stop, drain=drain)
