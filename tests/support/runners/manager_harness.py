"""A manager on the bench: a data folder, a configuration that points at a server, ways to start and break it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.cells.served_cell import ServedCell

from remuda.lib.files import InUseError, hold_lock
from remuda.manager.environments.port import Environment
from remuda.manager.jobs.journal import Journal
from remuda.manager.process.service import ManagerService
from remuda.manager.process.supervision import ManagerOptions
from remuda.testing.agent_process import AgentProcess
from remuda.testing.coordinator import RUNNER_TOKEN, Coordinator
from remuda.testing.waiting import until


@dataclass(frozen=True, slots=True)
class ManagerEvents:
    """How to end a manager."""

    stop: asyncio.Event
    drain: asyncio.Event
    reload: asyncio.Event


@dataclass
class ManagerBench:
    """Where a manager lives."""

    folder: Path
    server: Coordinator | ServedCell
    spawned: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def coordinator(self) -> Coordinator:
        assert isinstance(self.server, Coordinator)
        return self.server

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def jobs(self) -> Path:
        """Where the agent, working directories and caches are."""
        return self.folder / "data.jobs"

    @property
    def work_dir(self) -> Path:
        """Of jobs in the first slot, once there was one."""
        [found] = self.jobs.glob("builds/abcdefghi/0-*/group/project")
        return found

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def write_config(
        self, *, concurrent: int = 4, executor: str = "shell", url: str = "", top: str = "", extra: str = ""
    ) -> None:
        """Configure one runner of the server. `top` goes to the global keys, `extra` to those of the runner.

        A cell gets a new runner by each call. `url` is another address of the server.
        """
        token = RUNNER_TOKEN if isinstance(self.server, Coordinator) else self.server.new_runner().token
        self.config.write_text(
            f'concurrent = {concurrent}\ncheck_interval = 0.2\nlog_level = "debug"\n{top}\n'
            f'[[runners]]\nname = "bench"\nurl = "{url or self.server.url}"\ntoken = "{token}"\n'
            f'executor = "{executor}"\nrequest_concurrency = 2\noutput_limit = 102400\n{extra}\n'
        )

    @asynccontextmanager
    async def manager(
        self,
        environment: Environment | None = None,
        *,
        keep_alive_seconds: float = 30.0,
        agent_lost_seconds: float = 900.0,
        keep_builds: bool = False,
    ) -> AsyncIterator[ManagerEvents]:
        """A manager in this process; at the end it is drained, so that its jobs are over (stopped, after an error)."""
        if not self.config.exists():
            self.write_config()
        events = ManagerEvents(asyncio.Event(), asyncio.Event(), asyncio.Event())
        ready = asyncio.Event()
        service = ManagerService(
            self.config,
            self.data,
            environment=environment,
            agent_idle_exit_seconds=5,
            options=ManagerOptions(
                keep_alive_seconds=keep_alive_seconds, agent_lost_seconds=agent_lost_seconds, keep_builds=keep_builds
            ),
        )
        async with asyncio.TaskGroup() as group:
            serving = service.run(events.stop, drain=events.drain, reload=events.reload, ready=ready.set)
            running = group.create_task(serving, name="manager")
            waiting = group.create_task(ready.wait(), name="ready")
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            try:
                yield events
            except BaseException:
                events.stop.set()
                raise
            events.drain.set()

    async def spawn(self, kill_point: str = "", *, agent_idle_exit: str = "5") -> asyncio.subprocess.Process:
        """A manager as a process of its own; an empty `agent_idle_exit` leaves it to the manager when agents end."""
        if not self.config.exists():
            self.write_config()
        marks = {"REMUDA_KILL_POINT": kill_point, "REMUDA_KILL_MARK": str(self.folder / "killed")}
        command = ["--config", str(self.config), "--data", str(self.data)]
        command += ["--agent-idle-exit", agent_idle_exit] if agent_idle_exit else []
        with (self.folder / "manager.out").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "remuda.manager",
                *command,
                env=os.environ | marks,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.spawned.append(process)
        return process

    @property
    def agent_pid(self) -> int:
        return int((self.jobs / "agent" / "agent.lock").read_text())

    def kill_agent(self) -> None:
        """kill -9; its jobs go on."""
        os.kill(self.agent_pid, signal.SIGKILL)

    def rows(self) -> int:
        """How many jobs the journal holds; only while no manager runs."""
        journal = Journal(self.data / "journal.sqlite")
        try:
            return len(journal.jobs())
        finally:
            journal.close()

    async def close(self) -> None:
        """Leave neither managers behind nor an agent and what it runs: a new one adopts the jobs that are left."""
        for process in self.spawned:
            if process.returncode is None:
                process.kill()
                await process.wait()
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            self.kill_agent()
        agent = self.jobs / "agent"
        if any((agent / "jobs").glob("*")):
            await until(partial(_is_free, agent / "agent.lock"))
            async with AgentProcess(agent):
                pass


def _is_free(lock: Path) -> bool:
    try:
        with hold_lock(lock):
            return True
    except InUseError:
        return False
