"""Runs a manager for tests: its folders and configuration for a server, and ways to start, stop and kill it."""

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
    """Events that stop, drain or reload a manager when they are set."""

    stop: asyncio.Event
    drain: asyncio.Event
    reload: asyncio.Event


@dataclass
class ManagerHarness:
    """The folders, configuration and processes of a manager under test."""

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
        """Folder of the agent, working directories and caches."""
        return self.folder / "data.jobs"

    @property
    def work_dir(self) -> Path:
        """Working directory of jobs in the first slot; exists after the first job."""
        [folder] = self.jobs.glob("builds/abcdefghi/0-*/group/project")
        return folder

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def write_config(
        self, *, concurrent: int = 4, executor: str = "shell", url: str = "", top: str = "", extra: str = ""
    ) -> None:
        """Write a configuration with one runner. `top` is added to the global keys, `extra` to those of the runner.

        On a cell each call creates a new runner. `url` replaces the URL of the server.
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
        """Run a manager in this process. At the end it is drained, so that its jobs have ended; after an error it is
        stopped."""
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
            run = service.run(events.stop, drain=events.drain, reload=events.reload, ready=ready.set)
            running = group.create_task(run, name="manager")
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
        """Start a manager in its own process. With an empty `agent_idle_exit` its default applies."""
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
        """Kill (SIGKILL) the agent. Processes of its jobs continue."""
        os.kill(self.agent_pid, signal.SIGKILL)

    def rows(self) -> int:
        """Number of jobs in the journal. Call it only while no manager runs."""
        journal = Journal(self.data / "journal.sqlite")
        try:
            return len(journal.jobs())
        finally:
            journal.close()

    async def close(self) -> None:
        """Kill managers and the agent. If jobs are left, start a new agent, which adopts and ends them."""
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
