"""Data types of a policy, and of the decisions that follow from it."""

from collections.abc import Mapping
from dataclasses import field

from remuda.lib.dataclass import dataclass
from remuda.steps.language.values import Call, ReferenceKind
from remuda.steps.process.limits import NO_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A pattern for where a step comes from: a kind, such as git, and a glob; an empty glob matches all."""

    kind: ReferenceKind | None
    """None fits every kind."""
    glob: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str
    allows: bool
    sources: tuple[Source, ...]
    version: str = ""
    """A range such as `>=1.2,<2`; empty: any."""
    digests: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    reason: str = ""
    """Shown when a step is denied."""
    limits: Limits = NO_LIMITS
    lifted: frozenset[str] = frozenset()
    """Names of limits of the document that do not apply to these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """A step that a policy adds before or after every job, or before or after certain steps."""

    call: Call
    is_before: bool
    around: tuple[Source, ...] = ()
    """Steps before or after each of which it runs; empty: the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The policy document of one author: the runner, an organization, a group, or a project."""

    author: str
    """For messages: `runner builder`, `project 5`."""
    allows_by_default: bool = True
    rules: tuple[Rule, ...] = ()
    limits: Limits = NO_LIMITS
    insertions: tuple[Insertion, ...] = ()
    substitutes: Mapping[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ()
    """Globs of addresses of container engines that steps of a user may name."""
    refuses_advisory: bool = False
    """A step does not start if its limits, or the policy itself, would be advisory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The complete policy of a job: its layers, the outermost first. A step must be allowed by every layer."""

    layers: tuple[Layer, ...] = ()
    is_delegated: bool = False
    """True if it applies to a part of a job that another agent has delegated: nothing is inserted around that part."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Predefined variables of inserted steps, with the values of the server and the runner, whatever the job says."""
    server_ca: str = ""
    """Certificates by which inserted steps verify the server; empty: those of the machine."""

    @property
    def substitutes(self) -> dict[str, str]:
        """The references that the policy replaces, each with the one to use instead. Outer layers take precedence."""
        merged: dict[str, str] = {}
        for layer in self.layers:
            merged = dict(layer.substitutes) | merged
        return merged

    @property
    def refuses_advisory(self) -> str | None:
        """The author of the first layer that refuses advisory limits, which a step could evade; None if all accept."""
        return next((layer.author for layer in self.layers if layer.refuses_advisory), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
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
    """Of a local step: the real path of its definition, without links; empty: that is the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a step may run, which rule decided that, and the limits of the step."""

    allowed: bool
    rule: str
    """The rule that denied the step; if it is allowed, the rules that allowed it, one of every layer."""
    reason: str
    """For messages."""
    limits: Limits = NO_LIMITS
