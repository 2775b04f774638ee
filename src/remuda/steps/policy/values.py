"""What a policy says, and what follows from it, as values. Nothing is read, decided or done here."""

import json
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.steps.language.values import Call, ReferenceKind

AllowList = tuple[str, ...]
"""Hosts that may be reached, as patterns: `example.com`, `*.example.com`, `example.com:443`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one step may use; None is no limit."""

    network: tuple[AllowList, ...] | None = None
    """Lists that must all have a host; an empty list has none, so nothing can be reached."""
    memory_bytes: int | None = None
    cpus: float | None = None
    disk_bytes: int | None = None
    pids: int | None = None
    timeout_seconds: float | None = None

    @property
    def reaches_nothing(self) -> bool:
        return self.network is not None and not all(self.network)

    def names(self) -> tuple[str, ...]:
        """Which of them are limited, in the words of a policy."""
        return tuple(NAMES[one.name] for one in fields(self) if getattr(self, one.name) is not None)

    def to_json(self) -> str:
        """For a step that makes an environment, which holds its inner steps to them."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}
        return json.dumps(values)


NAMES = {
    "network": "network",
    "memory_bytes": "memory",
    "cpus": "cpu",
    "disk_bytes": "disk",
    "pids": "pids",
    "timeout_seconds": "timeout",
}
"""Of limits, in a policy and in results."""
NO_LIMITS = Limits()


def stricter(one: Limits, other: Limits) -> Limits:
    """Both at once."""
    lists = dict.fromkeys((*(one.network or ()), *(other.network or ())))
    values: dict[str, Any] = {}
    for name in (name for name in NAMES if name != "network"):
        given = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        values[name] = min(given, default=None)
    return Limits(network=tuple(lists) if lists else None, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A pattern for where a step comes from: a kind, and for that a glob; an empty one fits all of the kind."""

    kind: ReferenceKind | None
    """None fits every kind."""
    glob: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Allows or denies the steps that it fits."""

    name: str
    allows: bool
    sources: tuple[Source, ...]
    version: str = ""
    """A range such as `>=1.2,<2`; empty: any."""
    digests: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    reason: str = ""
    """For whoever reads that a step was denied."""
    limits: Limits = NO_LIMITS
    lifted: frozenset[str] = frozenset()
    """Names of limits of the document that do not hold for these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """A step that every job runs."""

    call: Call
    is_before: bool
    around: tuple[Source, ...] = ()
    """Steps before or after each of which it runs; none: the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one author says: the runner, or an organization, a group, a project."""

    author: str
    """In words: `runner builder`, `project 5`."""
    allows_by_default: bool = True
    rules: tuple[Rule, ...] = ()
    limits: Limits = NO_LIMITS
    insertions: tuple[Insertion, ...] = ()
    substitutes: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ()
    """Globs of addresses of container engines that steps of a user may name."""
    refuses_advisory: bool = False
    """A step does not start where its limits, or the policy itself, would be advisory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All layers, the one that binds the others first."""

    layers: tuple[Layer, ...] = ()
    is_delegated: bool = False
    """It is not the whole job that it holds for, but a part: nothing is inserted around that."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Predefined variables for inserted steps, with the values of the server and the runner, whatever the job says."""
    server_ca: str = ""
    """Certificates by which inserted steps know the server; empty: those of the machine."""

    @property
    def substitutes(self) -> dict[str, str]:
        """Other steps in place of named ones; an outer layer's word stands."""
        found: dict[str, str] = {}
        for layer in self.layers:
            found = dict(layer.substitutes) | found
        return found

    @property
    def refuses_advisory(self) -> str | None:
        """Who wants no step that cannot be held to the policy."""
        return next((layer.author for layer in self.layers if layer.refuses_advisory), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A step, resolved, as rules look at it."""

    kind: ReferenceKind
    reference: str
    """Canonical, as in results."""
    name: str
    path: str
    origin: str = "user"
    digest: str = ""
    commit: str | None = None
    version: str | None = None
    real: str = ""
    """Of a local step: where its definition really lies, without links; empty: that is the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a step may run, who says so, and within which limits."""

    allowed: bool
    rule: str
    """Whose rule decided: of a denial that one, else one of every layer."""
    reason: str
    """In words."""
    limits: Limits = NO_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """Steps around a job or a step."""

    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.before or self.after)


NOTHING_INSERTED = Inserted()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUsage:
    """What a step used, with everything it started; None is unknown."""

    cpu_user_seconds: float | None = None
    cpu_system_seconds: float | None = None
    memory_peak_bytes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
