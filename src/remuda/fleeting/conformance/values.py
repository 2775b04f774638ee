"""What is tried out, what a check is, and what comes of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remuda.fleeting.port import Connector
from remuda.fleeting.process import END_SECONDS
from remuda.lib.dataclass import dataclass

if TYPE_CHECKING:
    from remuda.fleeting.conformance.life import Life

ONLY_SSH = "let machines be reached by ssh; Remuda's managers log in in no other way"


class Outcome(StrEnum):
    """Of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"  # hosts get along with it, but it may not be what the author wants


class CheckError(Exception):
    """What happened, and what to do if that is not what the check says."""

    def __init__(self, happened: str, *, to_do: str = "") -> None:
        super().__init__(happened)
        self.to_do = to_do


class FailedError(CheckError):
    """A check that was not passed."""


class NotedError(CheckError):
    """A check that has something to say and fails nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a plugin is tried out."""

    program: str
    config: Mapping[str, Any] = field(default_factory=dict)
    connector: Connector = field(default_factory=Connector)
    instances: int = 1
    boot_seconds: float = 300.0
    """0: instances need not come to run."""
    is_connecting: bool = False
    call_seconds: float = 60.0
    least_seconds: float = 60.0
    """For instances to show, and to go, however soon they boot."""
    end_seconds: float = END_SECONDS
    """For the process to end once it is told to. Hosts wait no longer than the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a plugin has to do."""

    name: str
    expected: str
    to_do: str
    """Where it does not."""
    run: "Callable[[Life], Awaitable[None]]"
    is_needed: bool = False
    """What comes after it stands on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Of one check."""

    name: str
    outcome: Outcome
    expected: str
    happened: str = ""
    to_do: str = ""
    logged: Sequence[str] = ()
    """What the plugin wrote meanwhile, where it failed."""
