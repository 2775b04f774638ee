"""What an instance group is to whoever scales it: a few calls, and abilities that only some groups have.

`host.HostedGroup` is a plugin in a process of its own, `in_process.InProcess` one in ours; both are all of the
Protocols here, and their `ProviderInfo` says by its capabilities which of the optional ones mean anything. Nothing
is decided here. Protobuf stays in `codec`.

Call order: `init` once, first; then any of the others, any number of them at the same time; `shutdown` last. `increase`
and `decrease` only ask: what came of it is what the next `update` shows, above all after an error. Every call raises
TemporaryError or PermanentError with the cause.
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
"""A group that shows more is taken to be broken."""


class InstanceState(StrEnum):
    """How far the provider is with an instance. Order: creating, running, (suspending, suspended, resuming, running,)
    deleting, deleted."""

    CREATING = "creating"  # asked for, does not run yet
    RUNNING = "running"  # can be connected to, or soon
    DELETING = "deleting"  # on its way out
    DELETED = "deleted"  # gone
    TIMEOUT = "timeout"  # gone, after the provider gave up
    SUSPENDING = "suspending"  # on its way to suspended
    SUSPENDED = "suspended"  # stopped, and kept
    RESUMING = "resuming"  # on its way back to running
    UNKNOWN = "unknown"  # nobody can say, or no state that we know: it takes a place, gets no new job, and stays


class Capability(StrEnum):
    """Abilities by the names under which plugins announce them. Others that a plugin names are kept and not used."""

    HEARTBEAT = "heartbeat"  # upstream's plugins have it without saying so, so it is always tried
    SUSPEND_RESUME = "suspend_resume"
    STATS = "remuda.stats"
    RECOVER = "remuda.recover"
    PROVIDER = "remuda.provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """How instances are logged in to: as the operator says in Init, as the plugin says for one instance."""

    os: str = ""
    arch: str = ""
    protocol: str = ""
    """`ssh`, which empty means, too; `winrm`, `winrm+https`."""
    port: int = 0
    """0: the protocol's own."""
    username: str = ""
    password: str = field(default="", repr=False)
    key: bytes = field(default=b"", repr=False)
    """A private key, PEM or OpenSSH's."""
    use_static_credentials: bool = False
    """The operator's user with password or key; otherwise they are the plugin's to make."""
    keepalive_seconds: float = KEEPALIVE_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every plugin is told beside its own configuration."""

    connector: Connector = field(default_factory=Connector)
    owner: str = ""
    """Whose instances they will be: a plugin that can, tags them with it, and `recover` tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """What a group says of itself."""

    id: str
    max_size: int
    """Instances that it can have at most."""
    version: str = ""
    build_info: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectInfo:
    """How one instance is reached."""

    connector: Connector
    internal_addr: str = ""
    external_addr: str = ""
    """Addresses may have a port of their own."""
    expires_at: float | None = None
    """Seconds since the epoch; None: never."""

    def address(self, *, use_external: bool = False) -> str:
        """The one to dial. PermanentError where there is none: an empty one would lead to this very machine."""
        found = self.external_addr if use_external and self.external_addr else self.internal_addr
        found = found or (self.external_addr if use_external else "")
        if not found:
            other = "; it has an external one: set use_external_addr" if self.external_addr else ""
            raise PermanentError(f"the plugin gave no address that can be dialled{other}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """What the provider says about a group as a whole; None: it does not."""

    quota: int | None = None
    """Instances that we may have at present, those that we have included."""
    hourly_price: float | None = None
    """Of one instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedInstance:
    """An instance with the tag of an owner, found at the provider."""

    instance: str
    owner: str
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What jobs of one kind ask of a provider."""

    key: str = ""
    running: int = 0
    waiting: int = 0
    """They were accepted, and wait for an instance."""
    ready: int = 0
    """They wait at the server."""
    soon: int = 0
    """They will be ready when what they wait for has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a host tells a provider, all of it each time."""

    wanted: Sequence[Wanted] = ()
    open_requests: int = 0
    """Requests for jobs at the server; each may bring one."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Instances by who has them."""
    is_complete: bool = False
    """Nobody else has one: who is not in `held` and does not wait in `acquire` has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAtProvider:
    """How many jobs there may be."""

    capacity: int | None = None
    """At the same time, those that are there included; None: any number."""
    explanation: str = ""
    """For people: what the provider is doing, and why."""


class InstanceGroup(Protocol):
    """Instances that are alike, at one provider."""

    async def init(self, config: Mapping[str, Any], settings: Settings) -> ProviderInfo:
        """Once, first: the plugin's own configuration, and what every plugin is told."""
        ...

    async def update(self) -> Mapping[str, InstanceState]:
        """All instances."""
        ...

    async def increase(self, count: int) -> int:
        """Ask for that many more; how many the provider accepted."""
        ...

    async def decrease(self, instances: Sequence[str]) -> Sequence[str]:
        """Ask for these to go; those that the provider accepted."""
        ...

    async def connect_info(self, instance: str) -> ConnectInfo:
        """How to reach one. It may take effect there: a key is installed."""
        ...

    async def shutdown(self) -> None:
        """Clean up what was made for all instances together. They stay."""
        ...


@runtime_checkable
class HasHeartbeat(Protocol):
    """Can say whether an instance is well."""

    async def heartbeat(self, instance: str) -> None:
        """UnhealthyError says that it is not. A group without this ability finds all of them well."""
        ...


@runtime_checkable
class CanSuspend(Protocol):
    """Can stop instances and keep them."""

    async def suspend(self, instances: Sequence[str]) -> Sequence[str]:
        """Those that were accepted; a suspended one is."""
        ...

    async def resume(self, instances: Sequence[str]) -> Sequence[str]:
        """The same the other way."""
        ...


@runtime_checkable
class HasStats(Protocol):
    """Knows what the provider allows."""

    async def stats(self) -> GroupStats: ...


@runtime_checkable
class CanRecover(Protocol):
    """Can find instances by the tags of their owners, also those that `update` does not show."""

    async def recover(self) -> Sequence[TaggedInstance]: ...


@runtime_checkable
class Provides(Protocol):
    """Scales by itself, and says which instance a job gets. Its `increase` and `decrease` are never called.

    A holder is one job of one hand-out. Every call may be repeated, also to a new process.
    """

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        """Told every few seconds what is wanted and who holds what, it says how many jobs there may be."""
        ...

    async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
        """An instance, the same one when asked again; waits until there is one. Who is cancelled has none.
        PermanentError: there will never be one."""
        ...

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        """A job is over, or has not begun (`is_used`); the caches that it left there."""
        ...


CAPABILITIES: Mapping[Capability, type] = {
    Capability.HEARTBEAT: HasHeartbeat,
    Capability.SUSPEND_RESUME: CanSuspend,
    Capability.STATS: HasStats,
    Capability.RECOVER: CanRecover,
    Capability.PROVIDER: Provides,
}
