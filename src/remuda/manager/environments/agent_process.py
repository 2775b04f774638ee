"""The agent's process on this machine: how it is started.

Apart from `local`, which keeps it up and talks to it, because whoever starts a whole platform can start the agent
before everything else: it takes as long to start as the rest, and needs none of it.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.lib.descriptors import restore_limit

_LOG_LIMIT_BYTES = 1 << 20


def agent_data(manager_data: Path) -> Path:
    """Where the agent of a manager keeps its jobs."""
    return manager_data.absolute() / "agent"


def agent_log(manager_data: Path) -> Path:
    return manager_data.absolute() / "agent.log"


def spawn_agent(manager_data: Path, *, idle_exit_seconds: float, around: Sequence[str] = ()) -> int:
    """Start an agent that owes nothing to this process: own session, own log, no inherited descriptors. Its number.

    `around`: words that stand before its command, such as a sandbox; the number is theirs then, the session the same.
    """
    log = agent_log(manager_data)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    # -P: the current folder may be a repository, whose modules must not come before ours.
    arguments = [*around, sys.executable, "-P", "-m", "remuda.steps", "serve"]
    arguments += ["--data", str(agent_data(manager_data)), "--idle-exit", str(idle_exit_seconds)]
    pid = os.posix_spawn(
        arguments[0],
        arguments,
        agent_environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT],
        setsigmask=[],
    )
    restore_limit(pid)
    return pid


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The manager's environment without its own settings: some of them are secrets. Kill points stay."""
    kept = ("REMUDA_KILL_POINT", "REMUDA_KILL_MARK", "REMUDA_CGROUP")
    return {key: value for key, value in environ.items() if not key.startswith(("REMUDA_", "OTEL_")) or key in kept}
