"""Generates systemd units for a cell: the cell itself, its backup, and the timer of the backup.

packaging/systemd has the same files for programs in /usr/local/bin. A cell does not start processes that outlive it,
so the units may restrict it more than a manager's."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KEPT_BACKUPS = 14
HIDDEN_FOLDERS = ("/home", "/root", "/run/user")
"""The folders that `ProtectHome=yes` makes empty for a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPaths:
    program: str = "/usr/local/bin/remuda"
    config: str = "/etc/remuda/cell.toml"
    backups: str = "/var/backups/remuda"
    user: str = "remuda"


def cell_unit(paths: CellPaths) -> str:
    return f"""\
[Unit]
Description=Remuda cell
Wants=network-online.target
After=network-online.target postgresql.service

[Service]
Type=exec
User={paths.user}
ExecStart={paths.program} cell serve --config {paths.config}
# Reads certificate and key again; the cell also notices changed files by itself. Settings need a restart.
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=2
TimeoutStopSec=60
LimitNOFILE=1048576
TasksMax=infinity
{_restrictions()}
# The default data folder, /var/lib/remuda. For another one: ReadWritePaths= in a drop-in (systemctl edit).
StateDirectory=remuda
StateDirectoryMode=0700
# Ports below 1024.
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE

[Install]
WantedBy=multi-user.target
"""


def find_hidden_files(paths: CellPaths) -> list[str]:
    """Return the program and the configuration file if they are, or lead, into a folder that the units cannot read."""
    files = [file for file in (paths.program, paths.config) if os.path.isabs(file)]
    return [
        file
        for file in files
        if any(
            Path(place).is_relative_to(hidden) for place in (file, os.path.realpath(file)) for hidden in HIDDEN_FOLDERS
        )
    ]


def backup_unit(paths: CellPaths) -> str:
    return f"""\
[Unit]
Description=Backup of the Remuda cell

[Service]
Type=oneshot
User={paths.user}
ExecStart={paths.program} cell backup {paths.backups} --keep {KEPT_BACKUPS} --config {paths.config}
Nice=10
IOSchedulingClass=idle
{_restrictions()}
StateDirectory=remuda
StateDirectoryMode=0700
ReadWritePaths={paths.backups}
"""


def backup_timer(paths: CellPaths) -> str:
    return """\
[Unit]
Description=Daily backup of the Remuda cell

[Timer]
OnCalendar=*-*-* 03:00
RandomizedDelaySec=30min
# After a time without power, at the next start.
Persistent=yes

[Install]
WantedBy=timers.target
"""


def _restrictions() -> str:
    return """\
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes"""


UNITS: dict[str, Callable[[CellPaths], str]] = {
    "remuda-cell.service": cell_unit,
    "remuda-cell-backup.service": backup_unit,
    "remuda-cell-backup.timer": backup_timer,
}
"""What each unit file has, by its name."""
