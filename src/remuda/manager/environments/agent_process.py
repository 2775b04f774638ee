"""Starts the agent's process on this machine. Its own module, because a command that starts cell, manager and agent
together can start the agent first, while the other modules are still being imported."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.lib.descriptors import restore_limit

_LOG_LIMIT_BYTES = 1 << 20


def agent_data(manager_data: Path) -> Path:
    return manager_data.absolute() / "agent"


def agent_log(manager_data: Path) -> Path:
    return manager_data.absolute() / "agent.log"


def spawn_agent(manager_data: Path, *, idle_exit_seconds: float, around: Sequence[str] = ()) -> int:
    """Start an agent in its own session, with data and log file in `manager_data` and no inherited file descriptors.
    Returns its process id, or that of the command prefix `around`, such as a sandbox. The agent ends itself after
    `idle_exit_seconds` without jobs."""
    log = agent_log(manager_data)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    # -P: the current folder may be a repository, whose modules must not be imported.
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
    """Return the environment variables for an agent: `environ` without the manager's settings, as some are secret."""
    allowed = ("REMUDA_KILL_POINT", "REMUDA_KILL_MARK", "REMUDA_CGROUP")
    return {key: value for key, value in environ.items() if not key.startswith(("REMUDA_", "OTEL_")) or key in allowed}
