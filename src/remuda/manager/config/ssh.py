"""Types and checks for `[runners.ssh]` and `[[runners.remuda.machines]]`: machines that jobs run on, reached by SSH.
The checks do not connect to the machines."""

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
    """Whether any host key is accepted. Default: false; gitlab-runner's default is true."""
    known_hosts_file: str = ""
    """Default: `~/.ssh/known_hosts` of the manager's user."""


class MachineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.remuda.machines]]`: a machine of a fixed list."""

    host: str = ""
    name: str = ""
    """The machine's name in the journal and in messages; must be stable. Default: the host."""
    port: int = DEFAULT_PORT
    user: str = "root"
    identity_file: str = ""
    password: str = ""
    known_hosts_file: str = ""
    host_key: str = ""
    """The machine's public key, one line such as `ssh-ed25519 AAAA...`; if set, no other is trusted."""
    capacity: int = 1
    """Jobs that run there at the same time."""
    use_count: int = 0
    """Most jobs in the machine's life; 0: no limit."""

    def __post_init__(self) -> None:
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self.host)


def with_defaults(machine: Mapping[str, Any], runner: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of `[[runners.remuda.machines]]`, with defaults from the runner's autoscaling sections."""
    autoscaler = table_of(runner, "autoscaler")
    connector = table_of(autoscaler, "connector_config")
    legacy = table_of(runner, "machine")
    defaults = {
        "capacity": autoscaler.get("capacity_per_instance"),
        "use_count": autoscaler.get("max_use_count") or legacy.get("MaxBuilds"),
        "user": connector.get("username"),
        "password": connector.get("password"),
        "identity_file": connector.get("key_path"),
        "port": connector.get("protocol_port"),
    }
    return {key: value for key, value in defaults.items() if value} | dict(machine)


def check_ssh(ssh: SshConfig, where: str) -> None:
    if not ssh.host:
        raise ConfigError(f"{where}.host: is missing; name the machine that jobs run on")
    if not str(ssh.port).isdigit() or not 0 < int(ssh.port) < 65536:
        raise ConfigError(f"{where}.port: {ssh.port!r} is no port")
    if not ssh.password and not ssh.identity_file:
        raise ConfigError(f"{where}: has neither identity_file nor password; set one of them for the login")


def check_machines(machines: tuple[MachineEntry, ...], where: str) -> None:
    """Raise ConfigError if a machine of the list (key `where`) is incomplete or two have the same name."""
    for index, machine in enumerate(machines):
        place = f"{where}[{index}]"
        if not machine.host:
            raise ConfigError(f"{place}.host: is missing; name the machine")
        if not 0 < machine.port < 65536:
            raise ConfigError(f"{place}.port: {machine.port} is no port")
        if machine.capacity < 1:
            raise ConfigError(f"{place}.capacity: {machine.capacity} would never run a job; give at least 1")
        if machine.use_count < 0:
            raise ConfigError(f"{place}.use_count: {machine.use_count} is below 0; 0 is no limit")
        if not machine.password and not machine.identity_file:
            raise ConfigError(f"{place}: has neither identity_file nor password; set one of them for the login")
    names = [machine.name for machine in machines]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: {name!r} is there twice; give each machine a name of its own")


def table_of(owner: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the subsection `key` of the section `owner`; empty if it is missing or not a table."""
    table = owner.get(key)
    return table if isinstance(table, Mapping) else {}
