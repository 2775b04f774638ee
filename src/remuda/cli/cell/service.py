"""`remuda cell service`: prints systemd units for a cell and its backup.

A separate module, because it needs nothing of a cell, not even its settings."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def service(
    unit: Annotated[
        Literal["remuda-cell.service", "remuda-cell-backup.service", "remuda-cell-backup.timer"],
        Parameter(help="The unit to print."),
    ] = "remuda-cell.service",
    *,
    config: Annotated[Path, Parameter(help="File with the cell's settings.")] = Path("/etc/remuda/cell.toml"),
    backups: Annotated[Path, Parameter(help="Folder for backups.")] = Path("/var/backups/remuda"),
    user: Annotated[str, Parameter(help="User of the service.")] = "remuda",
) -> None:
    """Print a systemd unit for a cell, for its backup, or for the timer that starts the backup every night.

    Try:

        remuda cell service > /etc/systemd/system/remuda-cell.service
        remuda cell service remuda-cell-backup.timer > /etc/systemd/system/remuda-cell-backup.timer
    """
    from remuda.cell.operations.service_files import UNITS, CellPaths, find_hidden_files

    script = Path(sys.argv[0])
    is_program = script.name.startswith("remuda") and os.access(script, os.X_OK)
    paths = CellPaths(
        program=str(script.absolute()) if is_program else "remuda",
        config=str(config.absolute()),
        backups=str(backups.absolute()),
        user=user,
    )
    print(UNITS[unit](paths), end="")
    if unit.endswith(".service"):
        for file in find_hidden_files(paths):
            print(
                f"remuda: WARNING: the unit cannot read {file}: ProtectHome=yes hides home folders from it; install "
                "Remuda below /opt or from the Debian package, and keep the configuration in /etc/remuda",
                file=sys.stderr,
            )
