"""Types and checks for `[runners.docker]`: the containers of jobs. Names and meanings are gitlab-runner's."""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.manager.errors import ConfigError

DEFAULT_HOST = "unix:///var/run/docker.sock"
AUTO_HOST = "auto"
"""As `host`: the first engine of the manager's user that answers when a job starts."""
DEFAULT_WAIT_SECONDS = 30
POLICIES = ("always", "if-not-present", "never")

_LIMITS = (
    "memory",
    "memory_swap",
    "memory_reservation",
    "cpus",
    "cpuset_cpus",
    "cpu_shares",
    "cgroup_parent",
    "gpus",
)
_SAME_FOR_BOTH = (
    "dns",
    "dns_search",
    "extra_hosts",
    "cap_add",
    "cap_drop",
    "group_add",
    "sysctls",
    "ulimit",
    "runtime",
    "userns_mode",
    "isolation",
    "shm_size",
    "oom_kill_disable",
    "oom_score_adjust",
    "volume_driver",
)
_OF_JOBS = (
    "pids_limit",
    "security_opt",
    "devices",
    "device_cgroup_rules",
    "tmpfs",
    "cpuset_mems",
    "pid_mode",
    "links",
    "volumes_from",
    "log_options",
)
_NETWORK = ("network_mtu", "enable_ipv6")


class ServiceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.docker.services]]`: a service container that is started for every job."""

    name: str
    alias: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """`NAME=value`."""


class DockerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.docker]`, with gitlab-runner's keys."""

    host: str = ""
    """Address of the engine; empty: Docker's usual socket; `auto`: the engine that this user's tools would use."""
    image: str = ""
    """Image of jobs that name none."""
    pull_policy: str | tuple[str, ...] = ()
    allowed_pull_policies: tuple[str, ...] = ()
    """Policies that jobs may choose; empty: those of pull_policy."""
    allowed_images: tuple[str, ...] = ()
    allowed_services: tuple[str, ...] = ()
    allowed_privileged_images: tuple[str, ...] = ()
    allowed_privileged_services: tuple[str, ...] = ()
    allowed_users: tuple[str, ...] = ()
    disable_entrypoint_overwrite: bool = False
    privileged: bool = False
    services_privileged: bool | None = None
    user: str = ""
    hostname: str = ""
    volumes: tuple[str, ...] = ()
    network_mode: str = ""
    container_labels: dict[str, str] = {}
    wait_for_services_timeout: int = 0
    """Seconds; 0 means the default of 30, a negative number no wait."""
    services_limit: int = -1
    services: tuple[ServiceConfig, ...] = ()
    memory: str = ""
    memory_swap: str = ""
    memory_reservation: str = ""
    cpus: str = ""
    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    cpu_shares: int = 0
    cgroup_parent: str = ""
    gpus: str = ""
    pids_limit: int = 0
    """Most processes of a container; Remuda's own key."""
    service_memory: str = ""
    service_memory_swap: str = ""
    service_memory_reservation: str = ""
    service_cpus: str = ""
    service_cpuset_cpus: str = ""
    service_cpu_shares: int = 0
    service_cgroup_parent: str = ""
    service_gpus: str = ""
    shm_size: int = 0
    oom_kill_disable: bool = False
    oom_score_adjust: int = 0
    cap_add: tuple[str, ...] = ()
    cap_drop: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    services_security_opt: tuple[str, ...] = ()
    group_add: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    services_devices: dict[str, tuple[str, ...]] = {}
    """Devices of services, by a glob for their image."""
    device_cgroup_rules: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    volumes_from: tuple[str, ...] = ()
    volume_driver: str = ""
    pid_mode: str = ""
    ipcmode: str = ""
    network_mtu: int = 0
    enable_ipv6: bool = False
    log_options: dict[str, str] = {}
    dns: tuple[str, ...] = ()
    dns_search: tuple[str, ...] = ()
    extra_hosts: tuple[str, ...] = ()
    sysctls: dict[str, str] = {}
    ulimit: dict[str, str] = {}
    tmpfs: dict[str, str] = {}
    services_tmpfs: dict[str, str] = {}
    runtime: str = ""
    userns_mode: str = ""
    isolation: str = ""
    min_free_disk: str = "1g"
    """Disk space that must be free before a pull; unused images are removed for it. Remuda's own key."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The image pull policies, in the order in which they are tried, for jobs that choose none."""
        policies = (self.pull_policy,) if isinstance(self.pull_policy, str) else self.pull_policy
        return tuple(policy for policy in policies if policy) or ("always",)

    @property
    def wait_seconds(self) -> int:
        return max(self.wait_for_services_timeout or DEFAULT_WAIT_SECONDS, 0)

    def job_options(self) -> dict[str, Any]:
        """Return those options of the container engine for a job's container that do not depend on its image."""
        names = {name: name for name in (*_SAME_FOR_BOTH, *_LIMITS, *_OF_JOBS)}
        return self._options(names | {"ipc_mode": "ipcmode"})

    def service_options(self) -> dict[str, Any]:
        own = {"security_opt": "services_security_opt", "tmpfs": "services_tmpfs"}
        own |= {name: f"service_{name}" for name in _LIMITS}
        return self._options({name: name for name in _SAME_FOR_BOTH} | own)

    def network_options(self) -> dict[str, Any]:
        return self._options({name: name for name in _NETWORK})

    def _options(self, names: Mapping[str, str]) -> dict[str, Any]:
        values = {option: getattr(self, field) for option, field in names.items()}
        return {option: list(value) if isinstance(value, tuple) else value for option, value in values.items() if value}


def check(docker: DockerConfig, where: str) -> None:
    # Imported here because only runners with containers need them.
    from remuda.stdsteps.common.errors import StepError
    from remuda.stdsteps.common.sizes import parse_size
    from remuda.stdsteps.container.options import host_config, mounts, network_config
    from remuda.stdsteps.engine.docker_api import parse_address

    for text in (*docker.policies, *docker.allowed_pull_policies):
        if text not in POLICIES:
            raise ConfigError(f"{where}.pull_policy: {text!r} is none of {', '.join(POLICIES)}")
    try:
        if docker.host != AUTO_HOST:
            parse_address(docker.host or DEFAULT_HOST)
        parse_size(docker.min_free_disk, "min_free_disk")
        host_config(docker.job_options())
        host_config(docker.service_options())
        for devices in docker.services_devices.values():
            host_config({"devices": list(devices)})
        network_config(docker.network_options())
        mounts(list(docker.volumes))
    except StepError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix('options.')}") from None
