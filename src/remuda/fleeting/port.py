"""Port of an instance group: its calls, its values, and optional abilities.

`host.HostedGroup` (a plugin in a process of its own) and `in_process.InProcess` (one in ours) implement all Protocols
here; the capabilities in their `ProviderInfo` say which optional ones work.

Call order: `init` once, first; then any others, also concurrently; `shutdown` last. `increase` and `decrease` are only
requests: the next `update` shows their result, also after an error. Every call raises TemporaryError or PermanentError
with the cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from remuda.fleeting.errors import PermanentError
from remuda.lib.dataclass import dataclass

KEEPALIVE_SECONDS = 30.0
TIMEOUT_SECONDS = 600.0
MOST_INSTANCES = 100_000
"""A group that shows more is treated as broken."""


class InstanceState(StrEnum):
    """State of an instance at its provider. Order: creating, running, (suspending, suspended, resuming, running,)
    deleting, deleted."""

    CREATING = "creating"  # requested, does not run yet
    RUNNING = "running"  # accepts connections, or will soon
    DELETING = "deleting"  # being deleted
    DELETED = "deleted"  # gone
    TIMEOUT = "timeout"  # gone, after the provider gave up
    SUSPENDING = "suspending"  # becomes suspended
    SUSPENDED = "suspended"  # stopped and kept
    RESUMING = "resuming"  # becomes running again
    UNKNOWN = "unknown"  # cannot be looked up, or not a state we know: it takes a place, gets no new job, and stays


class Capability(StrEnum):
    """Names of abilities that plugins announce. Other names are ignored."""

    HEARTBEAT = "heartbeat"  # always tried: upstream's plugins do not announce it
    SUSPEND_RESUME = "suspend_resume"
    STATS = "remuda.stats"
    RECOVER = "remuda.recover"
    PROVIDER = "remuda.provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """How to log in to instances: from the operator in Init, from the plugin for one instance."""

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
    """Use the operator's user and password or key; otherwise the plugin makes credentials."""
    keepalive_seconds: float = KEEPALIVE_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that every plugin gets in addition to its configuration."""

    connector: Connector = field(default_factory=Connector)
    owner: str = ""
    """Owner of new instances. A plugin that can tags them with it, and `recover` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """What a group reports about itself."""

    id: str
    max_size: int
    """Maximum number of instances."""
    version: str = ""
    build_info: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectInfo:
    """How to connect to one instance."""

    connector: Connector
    internal_addr: str = ""
    external_addr: str = ""
    """Addresses may contain a port."""
    expires_at: float | None = None
    """Seconds since the epoch; None: never."""

    def address(self, *, use_external: bool = False) -> str:
        """The address to dial. PermanentError without one: an empty address would be this machine."""
        address = self.external_addr if use_external and self.external_addr else self.internal_addr
        if not address:
            other = "; it has an external one: set use_external_addr" if self.external_addr else ""
            raise PermanentError(f"the plugin gave no address that can be dialled{other}")
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Numbers of a whole group from its provider; None: unknown."""

    quota: int | None = None
    """Maximum number of instances at present, existing ones included."""
    hourly_price: float | None = None
    """Price of one instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedInstance:
    """An instance with the tag of an owner, as found at the provider."""

    instance: str
    owner: str
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Demand of the jobs of one capability key."""

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
    """Complete demand and holders, sent to a provider with every call."""

    wanted: Sequence[Wanted] = ()
    open_requests: int = 0
    """Open requests for jobs; each may bring one."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Instances by holder."""
    is_complete: bool = False
    """`held` is complete: a holder that is not in it and does not wait in `acquire` has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAtProvider:
    """A provider's answer: how many jobs it can take."""

    capacity: int | None = None
    """Concurrent jobs, present ones included; None: any number."""
    explanation: str = ""
    """Text for people: what the provider does, and why."""


class InstanceGroup(Protocol):
    """A group of equal instances at one provider."""

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        """Called once, first, with the plugin's configuration and common settings."""

    async def update(self) -> Mapping[str, InstanceState]:
        """States of all instances by name."""

    async def increase(self, count: int) -> int:
        """Request `count` more instances. Returns how many the provider accepted."""

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        """Request the deletion of instances. Returns those that the provider accepted."""

    async def connect_info(self, instance: str) -> ConnectInfo:
        """How to connect to an instance. May change it: some plugins install a key."""

    async def shutdown(self) -> None:
        """Clean up what was made for all instances together. Instances stay."""


@runtime_checkable
class HasHeartbeat(Protocol):
    """Can check the health of an instance."""

    async def heartbeat(self, instance: str) -> None:
        """Raises UnhealthyError for an unhealthy instance. Without this ability all are healthy."""


@runtime_checkable
class CanSuspend(Protocol):
    """Can stop and restart instances."""

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        """Returns the accepted instances; one that is suspended already is accepted."""

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        """Returns the accepted instances; one that runs already is accepted."""


@runtime_checkable
class HasStats(Protocol):
    """Can report the provider's quota and price."""

    async def stats(self) -> GroupStats: ...


@runtime_checkable
class CanRecover(Protocol):
    """Can find instances by their owners' tags, also those that `update` does not show."""

    async def recover(self) -> Sequence[TaggedInstance]: ...


@runtime_checkable
class Provides(Protocol):
    """Scales by itself and assigns instances to jobs. Its `increase` and `decrease` are never called.

    A holder is one job of one hand-out. Every call may be repeated, also to a new process.
    """

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        """Called every few seconds with demand and holders. Returns how many jobs there may be."""

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        """Wait for an instance; a repeated call returns the same one. A cancelled call holds nothing.

        Raises PermanentError if there will never be one.
        """

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        """A job has ended. `is_used`: false if it did not begin. `warmed`: caches that it left there."""


CAPABILITIES: Mapping[Capability, type] = {
    Capability.HEARTBEAT: HasHeartbeat,
    Capability.SUSPEND_RESUME: CanSuspend,
    Capability.STATS: HasStats,
    Capability.RECOVER: CanRecover,
    Capability.PROVIDER: Provides,
}
