"""Data types of a parsed and checked definition file. Texts in them may still contain expressions."""

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from remuda.lib.dataclass import dataclass

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Name of an input, output, variable or step."""

MISSING: Any = object()
"""Stands for a missing default; null is a value."""


class ValueType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    STRUCT = "struct"
    ARRAY = "array"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position in a definition file, for messages: file and line, such as `func.yml:12`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    type: ValueType
    default: Any = MISSING
    sensitive: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """First document of a definition file: the declared inputs and outputs of a step."""

    inputs: Mapping[str, Parameter] = field(default_factory=dict)
    outputs: Mapping[str, Parameter] = field(default_factory=dict)
    delegates_outputs: bool = False
    """`outputs: delegate`: the outputs are those of another step."""
    remuda: int | None = None
    """The version of Remuda's extensions that the file asks for; without it they are unknown keys."""
    version: str | None = None
    """Version of the step package, if it has one (an extension)."""


class ReferenceKind(StrEnum):
    """The kind of a reference: local folder, git, OCI registry, built-in, or dynamic (known only after evaluation)."""

    LOCAL = "local"
    GIT = "git"
    OCI = "oci"
    BUILTIN = "builtin"
    DYNAMIC = "dynamic"  # holds an expression: evaluated first, then one of the others


FETCHED = (ReferenceKind.GIT, ReferenceKind.OCI)
"""Kinds of references whose packages come from a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where a step's package is found. `kind` determines which fields are used; the others are empty."""

    kind: ReferenceKind
    text: str
    """As written; for DYNAMIC the text to evaluate."""
    path: str = ""
    """LOCAL: as written; GIT and OCI: folder inside the package, from its root; BUILTIN: its name."""
    file: str = ""
    """Name of the definition file; empty: func.yml, else step.yml."""
    url: str = ""
    """GIT: may hold credentials and, in the long form, expressions."""
    version: str = ""
    """GIT: revision; BUILTIN: beginning of the version, like 1, 1.2 or 1.2.3; empty: the newest."""
    registry: str = ""
    repository: str = ""
    tag: str = ""
    """OCI: a tag, or a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The key `retry` of a step (an extension): how often it is tried again after a failure, and with which delay."""

    times: int
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One entry of a list of steps: a call, or with `parallel` a group. An entry `script` calls builtin://script."""

    name: str
    place: Place
    reference: Reference | None = None
    """None only for a group, which has `parallel`."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    # Extensions from here on.
    condition: str | None = None
    """The expression of `if`, without the braces; None: success()."""
    retry: Retry | None = None
    timeout_seconds: float | None = None
    continue_on_error: bool = False
    origin: str = "user"
    """user, compiled (made from a classic job), inserted (by a policy)."""
    parallel: tuple["Call", ...] = ()
    """A group: these run at the same time."""
    inner: tuple["Call", ...] = ()
    """`run` of an entry: steps inside the environment that this step makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """A command with its arguments, which is run without a shell."""

    command: tuple[str, ...]
    work_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDefinition:
    """The commands of a step that creates an environment such as a container (an extension): `open` runs before the
    inner steps and outputs `environment`, which says how to run commands there; `close` always runs at the end."""

    open: Exec
    close: Exec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The second document of a definition file: what the step runs, exactly one of `exec`, `run` and `environment`."""

    exec: Exec | None = None
    run: tuple[Call, ...] = ()
    """In order; the calls of `finally` come last, with the condition always()."""
    environment: EnvironmentDefinition | None = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    delegate: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    spec: Spec
    definition: Definition
