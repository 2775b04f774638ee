"""`remuda manager service`: prints a service file that starts the manager."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def service(
    *,
    system: Annotated[
        Literal["systemd", "launchd", "windows"], Parameter(help="Kind of the service file.")
    ] = "systemd",
    config: Annotated[Path, Parameter(help="Configuration file of the manager.", env_var="CONFIG_FILE")] = Path(
        "/etc/gitlab-runner/config.toml"
    ),
    data: Annotated[Path, Parameter(help="Data folder of the manager.")] = Path("/var/lib/remuda-manager/data"),
    user: Annotated[str, Parameter(help="User of the service [default: root].")] = "",
) -> None:
    """Print a service file for this program: a systemd unit, a launchd property list, or a script for Windows.

    With each of them, the agent and its jobs continue when the manager ends, and the next start takes them over.

    Try:

        remuda manager service > /etc/systemd/system/remuda-manager.service
        systemctl daemon-reload && systemctl enable --now remuda-manager
        remuda manager service --system launchd > /Library/LaunchDaemons/org.remuda.manager.plist
    """
    from remuda.manager.process.service_files import SYSTEMS, ServicePaths

    paths = ServicePaths(
        program=_program(),
        config=str(config.absolute()),
        data=str(data.absolute()),
        user=user,
    )
    print(SYSTEMS[system](paths), end="")


def _program() -> str:
    script = Path(sys.argv[0])
    return str(script.absolute()) if script.name.startswith("remuda") and os.access(script, os.X_OK) else "remuda"
