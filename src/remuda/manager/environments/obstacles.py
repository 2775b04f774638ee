"""Finds out why no job of a runner can run on this machine: its container engine does not answer, a program or folder
cannot be used, or the users of its jobs cannot be used or cannot read Remuda's own code. Functions that are not `async`
block for up to some seconds."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from remuda.manager.config.docker import AUTO_HOST
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.agent_process import agent_environment
from remuda.steps.policy.hidden_folders import find_program, own_places

ENGINE_SECONDS = 5.0
"""How long a container engine may take to answer."""
_PROBE_SECONDS = 30.0
_PROBE = "import difflib, remuda.stdsteps"
"""Imports a module of Python and one of Remuda, as the steps of a job do."""
ON_THIS_MACHINE = ("shell", "docker")
"""Executors whose jobs have their agent on the manager's machine."""


class ObstacleSearch:
    """Searches for obstacles of one runner, again and again. What cannot change while the manager runs is checked only
    until it is right."""

    def __init__(self, runner: RunnerConfig) -> None:
        self._runner = runner
        self._has_user = False

    async def find(self) -> str:
        """Return why the runner's jobs cannot run here; empty if nothing is known."""
        return await asyncio.to_thread(self._find)

    def _find(self) -> str:
        if not self._has_user:
            if problem := find_user_problem(self._runner):
                return problem
            self._has_user = True
        setup = (f"{key}: {problem}" for key, problem in find_setup_problems(self._runner))
        return next(setup, "") or find_engine_problem(self._runner)


def find_setup_problems(runner: RunnerConfig) -> Iterator[tuple[str, str]]:
    """Yield key and problem for each program or folder without which all jobs of a runner on this machine fail."""
    if runner.executor == "custom":
        # Without the program of the stage `cleanup` jobs do run; see `readiness`.
        for key in ("config_exec", "prepare_exec", "run_exec"):
            if problem := find_program_problem(getattr(runner.custom, key)):
                yield f"custom.{key}", problem
    if runner.executor not in ON_THIS_MACHINE:
        return
    if runner.remuda.sandbox and find_program("bwrap") is None:
        yield "remuda.sandbox", "there is no bwrap on this machine; install bubblewrap"
    for key in ("builds_dir", "cache_dir"):
        folder = Path(getattr(runner, key))
        if not folder.is_absolute():
            continue
        nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
        if not nearest.is_dir():
            yield key, f"{nearest} is no folder; name another one"
        elif not os.access(nearest, os.W_OK | os.X_OK):
            yield key, f"{nearest} cannot be written to; let the manager's user write there, or name another"


def find_program_problem(program: str) -> str:
    """Return why a program of a custom executor cannot be started; empty if it can be, if it is not configured, or if
    it has a relative path, which counts from a folder that only jobs have."""
    if not program or ("/" in program and not program.startswith("/")) or shutil.which(program) is not None:
        return ""
    state = "is not executable (chmod +x)" if os.path.isfile(program) else "there is no such program"
    return f"{program}: {state}"


def find_engine_problem(runner: RunnerConfig) -> str:
    """Return why the container engine of a runner cannot be used; empty if it can, or it is on another machine."""
    if runner.executor != "docker":
        return ""
    # Imported here because only runners with containers need them.
    from remuda.stdsteps.common.errors import StepError
    from remuda.stdsteps.engine.docker_api import Engine

    if runner.docker.host == AUTO_HOST:
        from remuda.stdsteps.engine.discovery import find_engine

        search = find_engine(os.environ)
        return "" if search.engine is not None else search.explain()
    try:
        Engine(runner.docker.host, ping_seconds=ENGINE_SECONDS).version  # noqa: B018 - it asks the engine
    except StepError as error:
        return str(error)
    return ""


def find_user_problem(runner: RunnerConfig, *, python: str = sys.executable) -> str:
    """Return why steps cannot run as the user of `run_as` or `first_uid`; empty if they can. Starts `python` as that
    user if this process is root, because only that counts ACLs and groups, too."""
    own = runner.remuda
    if runner.executor not in ON_THIS_MACHINE or not (own.run_as or own.first_uid):
        return ""
    from remuda.steps.errors import BadRequestError
    from remuda.steps.policy.job_user import parse_run_as

    key = "first_uid" if own.first_uid else "run_as"
    try:
        user = parse_run_as(own.run_as or str(own.first_uid))
    except BadRequestError as error:
        return f"{key} cannot be used: {str(error).removeprefix('run_as: ').replace('this agent', 'the manager')}"
    assert user is not None
    try:
        probe = subprocess.run(
            [python, "-P", "-c", _PROBE],
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            env=agent_environment(os.environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        if probe.returncode == 0:
            return ""
        detail = probe.stderr.strip().rpartition("\n")[2] or f"ended with {probe.returncode}"
    except subprocess.TimeoutExpired:
        return ""  # a slow machine is no reason to refuse jobs
    except OSError as error:
        detail = error.strerror or str(error)
    places = (*own_places(), python)
    closed = next((folder for place in places if (folder := find_closed_folder(Path(place) / "any"))), None)
    return describe_closed_code(closed, f"user {user.uid} ({key})", detail)


def describe_closed_code(closed: Path | None, who: str, detail: str = "") -> str:
    """Say that users of jobs cannot read Remuda's code, and what to do. `closed`: the folder that is closed to them, if
    known. `detail`: what their attempt printed."""
    why = f"{closed} is closed to others, and " if closed is not None else ""
    attempt = f" ({detail})" if detail else ""
    return (
        f"{why}{who} cannot read Remuda's Python or its code{attempt}; install Remuda and its Python where every user "
        "can read them, for example below /opt"
    )


def find_closed_folder(path: Path) -> Path | None:
    """Return the outermost parent folder of `path` that other users cannot enter; None if they can enter all."""
    for folder in reversed(path.parents):
        if folder.is_dir() and not folder.stat().st_mode & 0o001:
            return folder
    return None
