"""`[runners.ssh]` and `[[runners.remuda.machines]]`: machines that jobs run on, reached by SSH. Pure.

Decides which values name a machine that can be reached at all; whether it can be is seen when the first job runs.
`config.py` reads the file; the `ssh` and `machines` environments use the values.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.manager.errors import ConfigError

DEFAULT_PORT = 22


class SshConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.ssh]`: the one machine of `executor = "ssh"`."""

    host: str = ""
    port: str | int = DEFAULT_PORT
    user: str = "root"
    password: str = ""
    identity_file: str = ""
    disable_strict_host_key_checking: bool | None = None
    """Whether any host key is taken. gitlab-runner does so where nothing is said; Remuda checks unless it is true."""
    known_hosts_file: str = ""
    """Default: `~/.ssh/known_hosts` of the manager's user."""

    @property
    def port_number(self) -> int:
        return int(self.port)


class MachineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.remuda.machines]]`: a machine of a fixed list."""

    host: str = ""
    name: str = ""
    """What the machine is called in the journal and in messages; stable over restarts. Default: the host."""
    port: int = DEFAULT_PORT
    user: str = "root"
    identity_file: str = ""
    password: str = ""
    known_hosts_file: str = ""
    host_key: str = ""
    """The machine's public key, one line such as `ssh-ed25519 AAAA...`; nothing else is trusted then."""
    capacity: int = 1
    """Jobs that run there at the same time."""
    use_count: int = 0
    """Jobs after which the machine gets no more; 0 is no limit."""

    def __post_init__(self) -> None:
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self.host)


def with_defaults(machine: Mapping[str, Any], runner: Mapping[str, Any]) -> dict[str, Any]:
    """A machine of the list with what the runner's autoscaler says of all machines, where the list does not say it."""
    autoscaler = _table(runner, "autoscaler")
    connector = _table(autoscaler, "connector_config")
    legacy = _table(runner, "machine")
    given = {
        "capacity": autoscaler.get("capacity_per_instance"),
        "use_count": autoscaler.get("max_use_count") or legacy.get("MaxBuilds"),
        "user": connector.get("username"),
        "password": connector.get("password"),
        "identity_file": connector.get("key_path"),
        "port": connector.get("protocol_port"),
    }
    return {key: value for key, value in given.items() if value} | dict(machine)


def check_ssh(ssh: SshConfig, where: str) -> None:
    """Refuse a section that leads nowhere."""
    if not ssh.host:
        raise ConfigError(f"{where}.host: is missing; name the machine that jobs run on")
    if not str(ssh.port).isdigit() or not 0 < int(ssh.port) < 65536:
        raise ConfigError(f"{where}.port: {ssh.port!r} is no port")
    if not ssh.password and not ssh.identity_file:
        raise ConfigError(f"{where}: has neither identity_file nor password; nobody could log in")


def check_machines(machines: tuple[MachineEntry, ...], where: str) -> None:
    """The same for a list of machines."""
    for index, machine in enumerate(machines):
        at = f"{where}[{index}]"
        if not machine.host:
            raise ConfigError(f"{at}.host: is missing; name the machine")
        if not 0 < machine.port < 65536:
            raise ConfigError(f"{at}.port: {machine.port} is no port")
        if machine.capacity < 1:
            raise ConfigError(f"{at}.capacity: {machine.capacity} would never run a job; give at least 1")
        if machine.use_count < 0:
            raise ConfigError(f"{at}.use_count: {machine.use_count} is below 0; 0 is no limit")
        if not machine.password and not machine.identity_file:
            raise ConfigError(f"{at}: has neither identity_file nor password; nobody could log in")
    names = [machine.name for machine in machines]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: {name!r} is there twice; give each machine a name of its own")


def _table(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = owner.get(key)
    return found if isinstance(found, Mapping) else {}
