"""`remuda manager run`: runs the runner manager in this process."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.options import ConfigToml
from remuda.lib import event_loop
from remuda.localrun.data_folder import data_folder


def run(
    *,
    config: ConfigToml,
    data: Annotated[
        Path | None,
        Parameter(help="Folder of the journal [default: one for each configuration file, in the user's data folder]."),
    ] = None,
    jobs: Annotated[
        Path | None,
        Parameter(
            help="Folder for agent, working directories and caches of jobs on this machine [default: "
            "DATA.jobs next to --data]."
        ),
    ] = None,
) -> None:
    """Take jobs from the servers in a configuration file and run them as it says.

    SIGTERM and Ctrl-C stop the manager at once. Running jobs continue, and the next start takes them over. SIGQUIT
    drains: the manager takes no new jobs and waits for running jobs, up to `drain_timeout`. SIGHUP reads the
    configuration again. The manager also reads it when the file has changed.

    Try:

        remuda manager run --config config.toml
        remuda manager run --config config.toml --data /var/lib/remuda-manager
        CONFIG_FILE=/etc/gitlab-runner/config.toml remuda manager run
    """
    from remuda.manager.process.known_managers import remember_manager, usual_folder

    managers = data_folder(None) / "managers"
    folder = data.absolute() if data else usual_folder(managers, config)
    if config.exists():  # else it has no manager, and the start reports the error
        remember_manager(managers, config, folder)
    event_loop.run(_run(config, folder, jobs.absolute() if jobs else None))


async def _run(config: Path, data: Path, jobs: Path | None) -> None:
    from remuda.lib.signals import handle_signals
    from remuda.manager.config.load import load
    from remuda.manager.config.value_checks import LOG_FORMATS, LOG_LEVELS
    from remuda.manager.process.service import ManagerService
    from remuda.manager.process.stop_signals import SignalEvents
    from remuda.telemetry import logs

    loaded = load(config)
    logs.configure(
        level=LOG_LEVELS[loaded.config.log_level], log_format=LOG_FORMATS[loaded.config.log_format], stream=sys.stderr
    )
    events = SignalEvents()
    service = ManagerService(config, data, jobs=jobs)
    with handle_signals(events.handlers, hangup_stops=False):
        await service.run(events.stop, drain=events.drain, reload=events.reload)
