"""The `local` environment: jobs run on the manager's own machine, as its user or that of `run_as`, under one agent.

The agent runs in its own session, so it outlives the manager. The manager reaches it through the socket in the agent's
data folder; a lock there prevents a second agent."""

import asyncio
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from remuda.lib.clock import Clock
from remuda.lib.safe_paths import close_after, make_below, remove_below
from remuda.manager.environments.agent_greeting import NO_ANSWER, greet
from remuda.manager.environments.agent_process import agent_data, agent_log, spawn_agent
from remuda.manager.environments.port import Hook, JobPlace, PreparedPlace, Usage
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.plugins.job_hooks import run_hook
from remuda.steps.errors import AgentError
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.wire.agent_client import AgentClient, socket_of, unix_channel

START_SECONDS = 20.0
"""How long a new agent may take to answer; many resumed jobs make it slower."""
HELLO_SECONDS = 5.0
"""How long a listening agent may take to answer, so that a hanging one does not block the manager."""
MACHINE = "local"
"""The name of the only machine."""
_LOOK_SECONDS = 0.02


class LocalEnvironment:
    """Runs jobs on this machine. `data` is the folder for the agent, working directories and caches."""

    fixed_machine = MACHINE

    def __init__(
        self,
        data: Path,
        *,
        clock: Clock,
        idle_exit_seconds: float = IDLE_EXIT_SECONDS,
        agent_pid: int | None = None,
        around_agent: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> None:
        """`agent_pid` is an agent that this process has already started; later ones end after `idle_exit_seconds`
        without jobs, and get the command prefix `around_agent`, such as a sandbox. Jobs cannot see `hidden` folders."""
        self._data = data.absolute()
        self._agent = agent_data(data)
        self._log = agent_log(data)
        self._clock = clock
        self._idle_exit_seconds = idle_exit_seconds
        self._pid = agent_pid
        self._around_agent = tuple(around_agent)
        self._hidden = tuple(hidden)

    def capacity(self) -> int | None:
        return None

    async def acquire(self, place: JobPlace) -> str:
        return MACHINE

    def adopt(self, place: JobPlace, machine: str) -> None:
        pass

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        folders = place.folders(self._data)
        try:
            # In a thread: many files may need another owner.
            await asyncio.to_thread(self._make, place)
        except AgentError as error:
            raise EnvironmentLostError(str(error)) from error
        except OSError as error:
            about = f": {error.filename}" if error.filename else ""
            raise EnvironmentLostError(
                f"the working directory {folders.work_dir} cannot be created: {error.strerror}{about}"
            ) from error
        return msgspec.structs.replace(folders, hidden=self._hidden)

    def _make(self, place: JobPlace) -> None:
        """Create the job's folders; they belong to the user `run_as` if the job has one."""
        base, folder = place.split_build_path(self._data, place.folder)
        is_owned = bool(place.run_as)
        if not place.may_have_begun:
            # Leftovers would be in the job's HOME.
            remove_below(base, f"{folder}.tmp")
        with ExitStack() as stack:
            opened = {
                name: stack.enter_context(close_after(make_below(base, name, mode=mode, is_owned=is_owned)))
                for name, mode in ((folder, 0o777), (f"{folder}.tmp", 0o700))
            }
            if not place.run_as:
                return
            # Imported here because it is slow.
            from remuda.steps.policy.job_user import hand_over, parse_run_as

            user = parse_run_as(place.run_as)
            assert user is not None
            # Searchable, not readable: everything here that is not for jobs is closed to others.
            self._data.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._data.chmod(stat.S_IMODE(self._data.stat().st_mode) | 0o011)
            above, caches = place.split_cache_path(self._data)
            cache = stack.enter_context(close_after(make_below(above, caches, is_owned=True)))
            for name, descriptor in ((base / name, handle) for name, handle in opened.items()):
                hand_over(name, user, descriptor, closed=True)
            hand_over(above / caches, user, cache, closed=True)

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        command, work_dir = place.command_of(hook), place.folders(self._data).work_dir
        return await run_hook(hook, command, place, work_dir=work_dir, error_type=EnvironmentLostError)

    async def connect(self, machine: str) -> AgentClient:
        has_started = False
        deadline = self._clock.monotonic() + START_SECONDS
        while self._clock.monotonic() < deadline:
            is_alive = self._is_alive()  # checked first: an agent that dies now had its chance to answer
            client = await self._reach()
            if client is not None:
                return client
            if not is_alive:
                if has_started:
                    break
                self._spawn()
                has_started = True
            await self._clock.sleep(_LOOK_SECONDS)
        raise EnvironmentTemporaryError(f"the agent does not answer; last line of its log: {self._last_log_line()}")

    async def recover(self) -> Sequence[str]:
        return [MACHINE] if self._agent.is_dir() else []

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        named = (_existing_folder(self._data / name) for name in folders)
        return Usage(disk_free_bytes=min(map(_free_bytes, (self._data, *named))))

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        """Remove the job's temporary folder. The working directory stays for the next job of the project, unless the
        job had one that no other job uses (`JobPlace.job` is set): then it is removed, too."""
        with suppress(OSError):
            await asyncio.to_thread(remove_below, *place.split_build_path(self._data, place.temporary_folder))

    async def close(self) -> None:
        pass

    async def _reach(self) -> AgentClient | None:
        socket = socket_of(self._agent)
        if socket is None:
            return None
        client = AgentClient(unix_channel(socket))
        try:
            await greet(client, seconds=HELLO_SECONDS)
        except NO_ANSWER:
            return None
        return client

    def _spawn(self) -> None:
        try:
            self._pid = spawn_agent(self._data, idle_exit_seconds=self._idle_exit_seconds, around=self._around_agent)
        except OSError as error:
            raise EnvironmentTemporaryError(f"the agent cannot be started: {error}") from error

    def _is_alive(self) -> bool:
        """True if this process has started an agent that still runs. If it has ended, its exit status is collected."""
        if self._pid is None:
            return False
        try:
            ended_pid, _ = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            ended_pid = self._pid
        if ended_pid:
            self._pid = None
        return self._pid is not None

    def _last_log_line(self) -> str:
        try:
            lines = self._log.read_bytes()[-2000:].decode(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else f"none in {self._log}"


def _existing_folder(folder: Path) -> Path:
    """Return the folder or its nearest existing parent, to measure the disk on which it will be created."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise EnvironmentTemporaryError(f"cannot read the free space of {folder}: {error.strerror}") from None
