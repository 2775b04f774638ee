"""What a policy says, and what follows from it, as values. Nothing is read, decided or done here."""

from collections.abc import Mapping
from dataclasses import field

from remuda.lib.dataclass import dataclass
from remuda.steps.language.values import Call, ReferenceKind
from remuda.steps.process.limits import NO_LIMITS, Limits


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
