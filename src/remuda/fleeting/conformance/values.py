"""Values of the conformance checks: parameters of a run (`Trial`), check, result, and the errors of a check."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remuda.fleeting.port import Connector
from remuda.fleeting.process import END_SECONDS
from remuda.lib.dataclass import dataclass

if TYPE_CHECKING:
    from remuda.fleeting.conformance.life import Life

ONLY_SSH = "let machines accept logins by SSH; Remuda's managers use nothing else"


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"  # works with hosts, but may not be what the author wants


class CheckError(Exception):
    """Base class: ends a check. `happened`: what the plugin did; `to_do`: advice for its author; empty: the check's."""

    def __init__(self, happened: str, *, to_do: str = "") -> None:
        super().__init__(happened)
        self.to_do = to_do


class FailedError(CheckError):
    """The plugin does not meet the requirement of the check."""


class NotedError(CheckError):
    """The check passed, with a remark for the plugin's author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Parameters of a run of the conformance checks: the plugin's program, its configuration, and time limits."""

    program: str
    config: Mapping[str, Any] = field(default_factory=dict)
    connector: Connector = field(default_factory=Connector)
    instances: int = 1
    boot_seconds: float = 300.0
    """Time limit until instances run; 0: they need not run."""
    is_connecting: bool = False
    """Log in to an instance by SSH as well."""
    call_seconds: float = 60.0
    least_seconds: float = 60.0
    """Lower bound of the time limit for instances to appear and to be deleted."""
    end_seconds: float = END_SECONDS
    """Time limit for the process to end on Shutdown. Hosts use the default."""
    say: Callable[[str], None] = lambda _: None
    """Gets lines about long waits: for what, since when, how long still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: str
    expected: str
    to_do: str
    """Advice for a plugin that fails the check."""
    run: "Callable[[Life], Awaitable[None]]"
    is_needed: bool = False
    """Later checks depend on it."""


class Checks(list[Check]):
    def add(
        self, name: str, *, expected: str, to_do: str, is_needed: bool = False
    ) -> "Callable[[Callable[[Life], Awaitable[None]]], Check]":
        """Decorator that adds a function as a check. `expected`: what the plugin should do; `to_do`: advice if it does
        not; `is_needed`: later checks do not run if this one fails."""

        def decorate(run: "Callable[[Life], Awaitable[None]]") -> Check:
            self.append(Check(name=name, expected=expected, to_do=to_do, run=run, is_needed=is_needed))
            return self[-1]

        return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    outcome: Outcome
    expected: str
    happened: str = ""
    to_do: str = ""
    logged: Sequence[str] = ()
    """Log lines of the plugin during a failed check."""
