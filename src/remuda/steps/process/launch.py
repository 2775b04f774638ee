"""What is started for a step: the command line, its environment and how its output is read.

`engine.launching` makes one, `policy.enforcement` puts the limits and the sandbox of the job around it, and
`engine.process_execution` starts it. It stands alone because these three lie in different layers.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from remuda.lib.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    work_dir: str
    only_for_shells: tuple[str, ...] = ()
    """Names of variables that no program can be given, but the shell of a script can."""
    program: tuple[str, ...] = ()
    """Name and arguments of our own program, where it is one; `argv` starts the same."""
    piped: bool = False
    """Its output has to be a pipe: it may open it anew, as our own programs do not."""
    owner: tuple[int, int] | None = None
    """User and group whose processes may open the output anew, where they are not the agent's."""
    joins: tuple[str, ...] = ()
    """Control groups of the step."""
    enclosure: Mapping[str, Any] = field(default_factory=dict)
    """What is done before our own program runs; `argv` does the same."""
    key: str = ""
    """Of the job, whose mark the process bears."""
    program_env: Mapping[str, str] | None = None
    """For our own program, where that of `argv` is another because more rights go with it."""
