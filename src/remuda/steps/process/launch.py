"""The value `Launch`: everything that is needed to start the process of a step.

It has its own module because `engine.launching` builds it, `policy.enforcement` adds limits and sandbox, and
`engine.process_execution` starts the process: these are in different layers."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: str
    only_for_shells: tuple[str, ...] = ()
    """Names of variables that are too large for an environment, so that only the shell of the script gets them."""
    program: tuple[str, ...] = ()
    """Name and arguments of the built-in program, if it is one; `argv` starts the same."""
    piped: bool = False
    """Its output must be a pipe, because it may open its output again. Built-in programs do not."""
    owner: tuple[int, int] | None = None
    """User and group that may open the output again, if they are not the agent's."""
    joins: tuple[str, ...] = ()
    """Paths of the cgroup.procs files of the step's control groups."""
    enclosure: Mapping[str, Any] = field(default_factory=dict)
    """Limits and user to apply before a built-in program runs (`enclosure_entry.enter`); `argv` includes them."""
    key: str = ""
    """The job's key, for the mark of the process."""
    program_env: Mapping[str, str] | None = None
    """Environment of the built-in program, if that of `argv` differs because it runs with more rights."""
