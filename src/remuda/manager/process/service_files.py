"""Generates service definitions for the manager: a systemd unit, a launchd property list, a script for a Windows
service.

When the manager ends, the local agent and its jobs continue. Therefore the definitions signal only the manager's own
process. Stopping the systemd unit drains the manager.

The manager is started again if it fails or is killed. It stays down if it ends with 0: after a drain, whoever asked
for it, and after SIGTERM."""

from dataclasses import dataclass
from xml.sax.saxutils import escape

STOP_SECONDS = 7200
"""How long a drain may take; the default of drain_timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePaths:
    program: str = "/usr/local/bin/remuda"
    config: str = "/etc/gitlab-runner/config.toml"
    data: str = "/var/lib/remuda-manager/data"
    user: str = ""
    """Empty: root, who can give each slot its own user."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.program, "manager", "run", "--config", self.config, "--data", self.data)


def systemd(paths: ServicePaths) -> str:
    user = f"User={paths.user}\n" if paths.user else ""
    command = " ".join(_quote(word) for word in paths.arguments)
    return f"""\
[Unit]
Description=Remuda runner manager
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=exec
{user}ExecStart={command}
# Reloads the configuration; the manager also notices a changed file by itself.
ExecReload=/bin/kill -HUP $MAINPID
# Not after a drain (also one by `remuda manager drain`) or SIGTERM: then the manager ends with 0.
Restart=on-failure
RestartSec=2

# Stopping drains: no new jobs, running ones are waited for. To stop at once, while jobs continue without a manager:
# systemctl kill --kill-whom=main --signal=TERM remuda-manager
# The next start finds these jobs.
KillSignal=SIGQUIT
TimeoutStopSec={STOP_SECONDS}
# Only the manager is signalled, never the agent and its jobs: the next start finds them again.
KillMode=process
# A job that uses too much memory must not take the manager with it.
OOMPolicy=continue
# Control groups for jobs, and limits that are high enough for thousands of jobs.
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576

StateDirectory=remuda-manager
StateDirectoryMode=0711
# Jobs inherit these restrictions. Stronger ones (NoNewPrivileges, ProtectSystem ...) would apply to jobs, too.
ProtectKernelLogs=yes
ProtectHostname=yes
RestrictRealtime=yes

[Install]
WantedBy=multi-user.target
"""


def launchd(paths: ServicePaths) -> str:
    """Return a launchd property list, for /Library/LaunchDaemons."""
    words = "\n".join(f"    <string>{escape(word)}</string>" for word in paths.arguments)
    user = f"  <key>UserName</key>\n  <string>{escape(paths.user)}</string>\n" if paths.user else ""
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>org.remuda.manager</string>
  <key>ProgramArguments</key>
  <array>
{words}
  </array>
{user}  <key>RunAtLoad</key>
  <true/>
  <!-- Not after a drain or SIGTERM: then the manager ends with 0. -->
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <!-- The agent and its jobs outlive the manager. -->
  <key>AbandonProcessGroup</key>
  <true/>
  <key>ExitTimeOut</key>
  <integer>60</integer>
  <key>SoftResourceLimits</key>
  <dict>
    <key>NumberOfFiles</key>
    <integer>65536</integer>
  </dict>
  <key>StandardErrorPath</key>
  <string>/var/log/remuda-manager.log</string>
</dict>
</plist>
"""


def windows(paths: ServicePaths) -> str:
    """Return a PowerShell script for NSSM, which can stop the manager without ending its child processes."""
    program, *rest = (word.replace("'", "''") for word in paths.arguments)
    words = " ".join(f'"{word}"' if " " in word else word for word in rest)
    account = f"& nssm set $service ObjectName '.\\{paths.user}'\n" if paths.user else ""
    return f"""\
# Creates the service remuda-manager. Needs an administrator and nssm in the path.
$ErrorActionPreference = 'Stop'
$service = 'remuda-manager'
& nssm install $service '{program}' '{words}'
{account}& nssm set $service Start SERVICE_AUTO_START
& nssm set $service AppExit Default Restart
# After a drain or Ctrl-C the manager ends with 0 and stays down.
& nssm set $service AppExit 0 Exit
& nssm set $service AppRestartDelay 2000
# Sends Ctrl-C first, and waits up to a minute until the manager has ended.
& nssm set $service AppStopMethodConsole 60000
# The agent and its jobs outlive the manager.
& nssm set $service AppKillProcessTree 0
& nssm start $service
"""


SYSTEMS = {"systemd": systemd, "launchd": launchd, "windows": windows}


def _quote(word: str) -> str:
    """Quote an argument for `ExecStart` in a systemd unit."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{word}"' if " " in word or "\\" in word else word
