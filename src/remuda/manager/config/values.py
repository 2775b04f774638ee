"""Types for a configuration: the whole file, a runner, and Remuda's own sections. All are immutable.

The fields are the supported keys, with gitlab-runner's names and defaults. Durations and sizes are stored as written; a
property such as `prepare_seconds` returns the number."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.lib.durations import parse_duration
from remuda.manager.config.autoscaler import AutoscalerConfig, FallbackConfig, InstanceConfig, MachineConfig, Span
from remuda.manager.config.cache import CacheConfig
from remuda.manager.config.custom import CustomConfig
from remuda.manager.config.docker import DockerConfig
from remuda.manager.config.ssh import MachineEntry, SshConfig
from remuda.stdsteps.common.sizes import parse_size

DEFAULT_CHECK_INTERVAL_SECONDS = 3
DEFAULT_DRAIN_SECONDS = 7200
DEFAULT_SHUTDOWN_SECONDS = 30
DEFAULT_AGENT_PATIENCE_SECONDS = 24 * 3600
DEFAULT_SLOT_CGROUP = "gitlab-runner/slot-${slot}"
WITH_CONTAINERS = frozenset({"docker", "docker-autoscaler", "docker+machine"})
"""Executors whose jobs run in containers; only these use `[runners.docker]`."""
WITH_MACHINES = frozenset({"instance", "docker-autoscaler", "docker+machine"})
"""Executors whose machines come from a group or a list."""
BY_JOB = "by-job"
"""The value of `containers` with which each job's `image` and `services` decide whether it runs in a container."""
SECTIONS: dict[str, frozenset[str]] = {
    "docker": WITH_CONTAINERS,
    "ssh": frozenset({"ssh"}),
    "custom": frozenset({"custom"}),
    "instance": frozenset({"instance"}),
    "autoscaler": frozenset({"instance", "docker-autoscaler"}),
    "machine": frozenset({"docker+machine"}),
    "kubernetes": frozenset(),
    "parallels": frozenset(),
    "virtualbox": frozenset(),
}
"""The executors that use a section of a runner; sections not named here are always used."""

EXECUTORS = ("shell", "docker", "ssh", "instance", "docker-autoscaler", "docker+machine", "custom", "plugin")

_PREFIX = re.compile(r"^(?:[a-z0-9_]+-)*?gl[a-z]+-(?:t[123]_)?|^t[123]_|^GR1348941")


def uses_section(runner: Mapping[str, Any], key: str) -> bool:
    """True if a parsed `[[runners]]` table uses its section `key`: its executor does, or `remuda.containers` is set."""
    if key not in SECTIONS or runner.get("executor") in SECTIONS[key]:
        return True
    own = runner.get("remuda")
    return key == "docker" and isinstance(own, Mapping) and bool(own.get("containers"))


class EnvironmentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.remuda.environment]`, for `executor = "plugin"`: the plugin that provides the machines for jobs."""

    plugin: str = ""
    """An installed plugin's name, or the path of its program."""
    config: dict[str, Any] = {}
    """The plugin's own settings."""


class RemudaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.remuda]`: keys that gitlab-runner does not have."""

    run_as: str = ""
    """The user of all jobs: a name, UID or UID:GID. The manager must be root."""
    first_uid: int = 0
    """A user for each slot instead: this number plus the slot's."""
    policy: dict[str, Any] = {}
    """The step policy of the runner, see docs/reference/step-policy.md."""
    containers: str = ""
    """With `executor = "shell"`, `by-job`: jobs that name an image or services run in containers. Empty: none does."""
    signing_key: str = ""
    """File with the Ed25519 key that signs artifacts, on the machine where jobs run."""
    git_mirrors: str = ""
    """Size limit of the shared repository mirrors in the cache folder, such as `20g`; empty: no mirrors."""
    machines: tuple[MachineEntry, ...] = ()
    """The machines of `instance`, `docker-autoscaler` and `docker+machine`; empty: they are created."""
    fallback: tuple[FallbackConfig, ...] = ()
    """Groups for demand that `[runners.autoscaler]` cannot satisfy, in the order of their use."""
    plugin_scales: bool = False
    """Whether the plugin of `[runners.autoscaler]` is a provider, which scales by itself."""
    known_hosts_file: str = ""
    """Host keys of created machines; empty: the first key seen is trusted from then on."""
    environment: EnvironmentConfig = EnvironmentConfig()
    hold_failed: Span = ""
    """How long a failed job stays on hold; empty: not at all."""
    hold_by_job: Span = ""
    """Longest hold that a job may request with REMUDA_HOLD_FAILED; empty: none longer than `hold_failed`."""
    allow_shell: bool = True
    """Whether shells may be opened in jobs."""
    before_job: str = ""
    """Shell command on the machine before each job, as the agent's user and outside the job."""
    after_job: str = ""
    """Shell command on the machine after each job."""
    sandbox: bool = False
    """Whether jobs run in a bubblewrap sandbox."""
    slot_memory: str = ""
    """Memory limit of a job, as a size; empty: no limit. With any of these three limits, slots have control groups."""
    slot_cpus: float = 0
    """Processor limit of a job; 0: no limit."""
    slot_pids: int = 0
    """Limit of processes and threads of a job; 0: no limit."""
    log_waiting_limit: str = ""
    """Most log bytes of a job on the agent's disk, as a size; empty: the agent's own limit."""
    least_disk: str = "64m"
    """With less free disk space, as a size, no job is requested."""
    frozen_agent: str = ""
    """File with the frozen agent, for machines without a suitable Python; see `make frozen`."""
    agent_patience: Span = ""
    """How long an agent keeps jobs without a manager before it gives them up; empty: a day."""

    @property
    def hold_failed_seconds(self) -> float:
        return parse_duration(self.hold_failed)

    @property
    def hold_by_job_seconds(self) -> float:
        return parse_duration(self.hold_by_job)

    @property
    def log_waiting_limit_bytes(self) -> int:
        return parse_size(self.log_waiting_limit, "log_waiting_limit")

    @property
    def slot_memory_bytes(self) -> int:
        return parse_size(self.slot_memory, "slot_memory")

    @property
    def limits_slots(self) -> bool:
        return bool(self.slot_memory_bytes or self.slot_cpus or self.slot_pids)

    @property
    def least_disk_bytes(self) -> int:
        return parse_size(self.least_disk, "least_disk")

    @property
    def agent_patience_seconds(self) -> float:
        return parse_duration(self.agent_patience) or DEFAULT_AGENT_PATIENCE_SECONDS


class CustomBuildDirConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.custom_build_dir]`: whether jobs may choose their working directory with GIT_CLONE_PATH."""

    enabled: bool | None = None
    """Whether jobs may choose their folder; None: only jobs in containers."""


class ArtifactConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.artifact]`: settings for the upload of artifacts."""

    upload_timeout: Span = ""
    """How long one upload may take; empty: the job's timeout."""

    @property
    def upload_seconds(self) -> float:
        """`upload_timeout` in seconds; 0 means that only the job's timeout applies."""
        return parse_duration(self.upload_timeout)


class QueuingDuration(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners.monitoring.job_queuing_durations]]`: how long jobs may wait in queue. The last match applies."""

    periods: tuple[str, ...] = ("* * * * *",)
    timezone: str = ""
    threshold: Span = ""
    jobs_running_for_project: str = ""
    """Regular expression for the server's count of the project's running jobs."""

    @property
    def threshold_seconds(self) -> float:
        return parse_duration(self.threshold)


class MonitoringConfig(msgspec.Struct, frozen=True, kw_only=True):
    job_queuing_durations: tuple[QueuingDuration, ...] = ()


class RunnerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[runners]]` section: a runner, which gets its jobs from one server."""

    name: str = ""
    url: str = ""
    token: str = ""
    id: int = 0
    token_obtained_at: Any = ""
    """Start and end of the token's life, RFC 3339; the year 1 means never."""
    token_expires_at: Any = ""
    executor: str = ""
    shell: str = ""
    builds_dir: str = ""
    """Folder of working directories, relative to the environment's folder for jobs. Default: `builds`."""
    cache_dir: str = ""
    """Folder of caches, relative to the environment's folder for jobs. Default: `cache`."""
    cache: CacheConfig = CacheConfig()
    clone_url: str = ""
    """The server's address for git, replacing the one in the repository's address. A file:// address names a folder of
    repositories on this machine."""
    environment: tuple[str, ...] = ()
    """`NAME=value` for every job; the job's own variables win."""
    limit: int = 0
    """Most jobs of this runner at the same time; 0: no separate limit."""
    request_concurrency: int = 1
    """Requests for jobs that may be open at the same time."""
    strict_check_interval: bool = False
    """Wait the check interval after a received job, too."""
    output_limit: int = 4096
    """Largest log of a job, in kilobytes."""
    pre_get_sources_script: str = ""
    post_get_sources_script: str = ""
    pre_build_script: str = ""
    post_build_script: str = ""
    debug_trace_disabled: bool = False
    """CI_DEBUG_TRACE of a job has no effect."""
    labels: dict[str, str] = {}
    feature_flags: dict[str, bool] = {}
    prepare_timeout: Span = ""
    """How long after its receipt a job may wait until its environment is prepared; empty: no limit."""
    get_sources_timeout: Span = ""
    """How long the checkout may take; empty: the job's timeout."""
    artifact: ArtifactConfig = ArtifactConfig()
    custom_build_dir: CustomBuildDirConfig = CustomBuildDirConfig()
    monitoring: MonitoringConfig = MonitoringConfig()
    use_slot_cgroups: bool = False
    slot_cgroup_template: str = ""
    docker: DockerConfig = DockerConfig()
    ssh: SshConfig = SshConfig()
    custom: CustomConfig = CustomConfig()
    instance: InstanceConfig = InstanceConfig()
    autoscaler: AutoscalerConfig = AutoscalerConfig()
    machine: MachineConfig = MachineConfig()
    remuda: RemudaConfig = RemudaConfig()
    tls_ca_file: str = msgspec.field(default="", name="tls-ca-file")
    tls_cert_file: str = msgspec.field(default="", name="tls-cert-file")
    tls_key_file: str = msgspec.field(default="", name="tls-key-file")

    @property
    def short_token(self) -> str:
        return short_token(self.token)

    @property
    def job_folders(self) -> list[str]:
        """The configured builds and cache folders; empty if jobs use the environment's default folders."""
        return [] if self.executor == "custom" else [folder for folder in (self.builds_dir, self.cache_dir) if folder]

    @property
    def has_containers(self) -> bool:
        return self.executor in WITH_CONTAINERS

    @property
    def may_use_containers(self) -> bool:
        """True if some or all jobs run in containers, so that `[runners.docker]` is used."""
        return self.has_containers or self.remuda.containers == BY_JOB

    @property
    def has_custom_build_dir(self) -> bool:
        """True if jobs may choose their working directory with GIT_CLONE_PATH."""
        enabled = self.custom_build_dir.enabled
        return self.has_containers if enabled is None else enabled

    def slot_cgroup(self, slot: int) -> str:
        """Return the path of a slot's control group (cgroup) on the machine; empty if slots have none."""
        template = self.slot_cgroup_template or DEFAULT_SLOT_CGROUP
        return template.replace("${slot}", str(slot)).strip("/") if self.has_slot_cgroups else ""

    @property
    def has_slot_cgroups(self) -> bool:
        return self.use_slot_cgroups or self.remuda.limits_slots

    @property
    def prepare_seconds(self) -> float:
        """`prepare_timeout` in seconds; 0 means no limit."""
        return parse_duration(self.prepare_timeout)

    @property
    def get_sources_seconds(self) -> float:
        """`get_sources_timeout` in seconds; 0 means that only the job's timeout applies."""
        return parse_duration(self.get_sources_timeout)


class SessionServer(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[session_server]`, which has no effect."""

    listen_address: str = ""
    advertise_address: str = ""
    session_timeout: int = 0


class OwnConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[remuda]`: global keys that gitlab-runner does not have."""

    drain_timeout: Span = ""
    """How long SIGQUIT waits for running jobs; empty: two hours."""


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a whole configuration file."""

    concurrent: int = 1
    """Most jobs of all runners at the same time."""
    check_interval: float = 0
    """Seconds between two requests that the server does not hold; 0 means the default of 3."""
    log_level: str = "info"
    log_format: str = "runner"
    listen_address: str = ""
    """Address of the metrics endpoint; empty: none."""
    shutdown_timeout: int = 0
    """Seconds that stopping may take; 0 means the default of 30."""
    labels: dict[str, str] = {}
    """Labels sent to the servers for all runners; a runner's own take precedence."""
    session_server: SessionServer = SessionServer()
    remuda: OwnConfig = OwnConfig()
    runners: tuple[RunnerConfig, ...] = ()

    @property
    def check_interval_seconds(self) -> float:
        return self.check_interval or DEFAULT_CHECK_INTERVAL_SECONDS

    @property
    def drain_seconds(self) -> float:
        return parse_duration(self.remuda.drain_timeout) or DEFAULT_DRAIN_SECONDS

    @property
    def shutdown_seconds(self) -> float:
        return self.shutdown_timeout or DEFAULT_SHUTDOWN_SECONDS


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: ManagerConfig
    warnings: tuple[str, ...] = ()


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    line: int | None = None
    text: str
    """Begins with the key it is about, such as `runners[0].limit`."""

    def in_file(self, file: str) -> str:
        return f"{file}:{self.line}: {self.text}" if self.line else f"{file}: {self.text}"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """All problems and warnings about a configuration file, and the configuration if there are no problems."""

    config: ManagerConfig | None = None
    sound: tuple[tuple[int, RunnerConfig], ...] = ()
    """The runners without problems, with their index in the file, also if other parts have problems."""
    problems: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()


def short_token(token: str) -> str:
    """Return the public first part of a runner token, which names the runner in folders, logs and metrics."""
    return _PREFIX.sub("", token, count=1)[:9]


def listen_address(text: str) -> tuple[str, int]:
    """Return host (default 0.0.0.0) and port of `host:port`, `:port` or `[v6]:port`. Raises ValueError if invalid."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address; write host:port, for example 127.0.0.1:9252")
    return host.strip("[]") or "0.0.0.0", int(port)
