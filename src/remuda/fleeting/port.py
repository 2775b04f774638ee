"""Interface of an instance group: calls that all plugins have, optional abilities, and their values.

`host.HostedGroup` (a plugin in a process of its own) and `in_process.InProcess` (one in the host's) implement all
Protocols here; the capabilities in their `ProviderInfo` say which optional ones work. Call order: `init` once, first;
then any others, also concurrently; `shutdown` last. `increase` and `decrease` are only requests: the next `update`
returns their result, also after an error. Every call raises TemporaryError or PermanentError with the cause."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from remuda.fleeting.errors import PermanentError
from remuda.lib.dataclass import dataclass

KEEPALIVE_SECONDS = 30.0
TIMEOUT_SECONDS = 600.0
MOST_INSTANCES = 100_000
"""Update and Recover with more instances raise TemporaryError."""


class InstanceState(StrEnum):
    """State at the provider. Usual order: creating, running, [suspending, suspended, resuming, running,] deleting,
    deleted."""

    CREATING = "creating"  # requested, does not run yet
    RUNNING = "running"  # accepts connections, or will soon
    DELETING = "deleting"  # being deleted
    DELETED = "deleted"  # gone
    TIMEOUT = "timeout"  # gone, after the provider gave up
    SUSPENDING = "suspending"  # becomes suspended
    SUSPENDED = "suspended"  # stopped and kept
    RESUMING = "resuming"  # becomes running again
    UNKNOWN = "unknown"  # cannot be looked up, or a number we do not know: counts for limits, gets no new job, is kept


class Capability(StrEnum):
    """Names of optional abilities that plugins announce. Other names are ignored."""

    HEARTBEAT = "heartbeat"  # called even if not announced: GitLab's plugins do not announce it
    SUSPEND_RESUME = "suspend_resume"
    STATS = "remuda.stats"
    RECOVER = "remuda.recover"
    PROVIDER = "remuda.provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """How to log in to instances: for `init` the operator's settings; from `connect_info` those of one instance."""

    os: str = ""
    arch: str = ""
    protocol: str = ""
    """`ssh` (also if empty), `winrm`, `winrm+https`."""
    port: int = 0
    """0: the default of the protocol."""
    username: str = ""
    password: str = field(default="", repr=False)
    key: bytes = field(default=b"", repr=False)
    """A private key in the format of PEM or OpenSSH."""
    use_static_credentials: bool = False
    """Use the operator's user and password or key; otherwise the plugin creates credentials."""
    keepalive_seconds: float = KEEPALIVE_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for every plugin besides its own: how to log in to instances, and the owner that tags new ones."""

    connector: Connector = field(default_factory=Connector)
    owner: str = ""
    """Owner of new instances. A plugin that can tag instances uses it as a tag, and `recover` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """What a plugin reports about itself and its group in answer to `init`."""

    id: str
    max_size: int
    """Maximum number of instances."""
    version: str = ""
    build_info: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectInfo:
    connector: Connector
    internal_addr: str = ""
    external_addr: str = ""
    """Addresses may contain a port."""
    expires_at: float | None = None
    """Seconds since the epoch; None: never."""

    def address(self, *, use_external: bool = False) -> str:
        """The external address if `use_external` is set and there is one, else the internal one. Raises PermanentError
        if that is empty, because an empty address would mean this machine."""
        address = self.external_addr if use_external and self.external_addr else self.internal_addr
        if not address:
            other = "; it has an external one: set use_external_addr" if self.external_addr else ""
            raise PermanentError(f"the plugin gave no address of the instance{other}")
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Quota and price of a whole group, as its provider reports them; None: unknown."""

    quota: int | None = None
    """Maximum number of instances at present, existing ones included."""
    hourly_price: float | None = None
    """Price of one instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedInstance:
    """An instance at the provider whose tag names its owner (a runner of a manager)."""

    instance: str
    owner: str
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How many jobs with one capability key (jobs with equal needs) run, wait, and will be ready soon."""

    key: str = ""
    running: int = 0
    waiting: int = 0
    """Accepted jobs that wait for an instance."""
    ready: int = 0
    """Jobs that wait at the server."""
    soon: int = 0
    """Jobs that will be ready when the jobs before them have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Report to a plugin that scales itself: how many jobs want instances, and which instance each running job has."""

    wanted: Sequence[Wanted] = ()
    open_requests: int = 0
    """Number of open requests for jobs; each may bring a job."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Instances by holder."""
    is_complete: bool = False
    """`held` is complete: a holder that is not in it and does not wait in `acquire` has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAtProvider:
    """Answer of a plugin that scales by itself: how many jobs it can run at the same time, and why."""

    capacity: int | None = None
    """Concurrent jobs, present ones included; None: any number."""
    explanation: str = ""
    """Text for people: what the provider does, and why."""


class InstanceGroup(Protocol):
    """Calls of a plugin, which manages a group of equal instances at one provider."""

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        """Start the plugin; return its id, version, size limit and abilities. Called once, before all other calls."""

    async def update(self) -> Mapping[str, InstanceState]:
        """Return the states of all instances of the group by name."""

    async def increase(self, count: int) -> int:
        """Request `count` more instances. Returns how many the provider accepted."""

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        """Request the deletion of instances. Returns the names of those that the provider accepted."""

    async def connect_info(self, instance: str) -> ConnectInfo:
        """Return how to connect to an instance. May change the instance: some plugins install an SSH key."""

    async def shutdown(self) -> None:
        """Remove resources that the plugin created for all instances together. Instances stay."""


@runtime_checkable
class HasHeartbeat(Protocol):
    """Optional ability of a plugin: check the health of an instance."""

    async def heartbeat(self, instance: str) -> None:
        """Raises UnhealthyError if the instance is unhealthy. Without this ability all instances count as healthy."""


@runtime_checkable
class CanSuspend(Protocol):
    """Optional ability of a plugin: stop instances and start them again."""

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        """Request that instances are stopped. Returns the accepted ones, also those suspended already."""

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        """Request that suspended instances are started. Returns the accepted ones, and those that already run."""


@runtime_checkable
class HasStats(Protocol):
    """Optional ability of a plugin: report the provider's quota and price."""

    async def stats(self) -> GroupStats: ...


@runtime_checkable
class CanRecover(Protocol):
    """Optional ability of a plugin: find instances by their owners' tags, also those that `update` does not return."""

    async def recover(self) -> Sequence[TaggedInstance]: ...


@runtime_checkable
class Provides(Protocol):
    """Optional ability of a plugin: create and delete instances by its own decision, and assign them to jobs. The
    manager never calls `increase`, and `decrease` only for `remuda scale sweep`, to remove orphans that `recover`
    found. A holder is the id of one run of a job. Every call may be repeated, also after a restart."""

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        """Called every few seconds: take demand and the jobs with instances. Returns how many jobs may run at once."""

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        """Wait for an instance; a repeated call returns the same one, after a cancelled one the job has none. `key`:
        equal for jobs of equal needs; `caches`: keys of its caches. PermanentError: the job can never get one."""

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        """A job has ended: reuse or delete its instance. `holder`: id of this run of the job. `is_used`: it started
        there. `warmed`: keys of the caches that it left there."""


CAPABILITIES: Mapping[Capability, type] = {
    Capability.HEARTBEAT: HasHeartbeat,
    Capability.SUSPEND_RESUME: CanSuspend,
    Capability.STATS: HasStats,
    Capability.RECOVER: CanRecover,
    Capability.PROVIDER: Provides,
}
