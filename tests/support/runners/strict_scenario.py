"""A manager before the strict GitLab, for playbooks: jobs, answers in place of the usual ones, and what came of it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.runners.manager_bench import ManagerBench, ManagerEvents
from tests.support.runners.strict_gitlab import RUNNER_TOKEN, StrictGitLab, StrictJob

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment

LOG = b"some bytes\n"


class Playbook:
    """A manager before the server; jobs are played by the test, or run by a real agent."""

    def __init__(self, folder: Path, gitlab: StrictGitLab, environment: FakeEnvironment) -> None:
        self.gitlab = gitlab
        self.environment = environment
        self.bench = ManagerBench(folder, Coordinator())
        self.bench.config.write_text(
            f'concurrent = 2\ncheck_interval = 0.2\n[[runners]]\nurl = "{gitlab.url}/"\n'
            f'token = "{RUNNER_TOKEN}"\nexecutor = "shell"\n'
        )

    @asynccontextmanager
    async def manager(self, *, keep_alive_seconds: float = 30.0) -> AsyncIterator[ManagerEvents]:
        async with self.bench.manager(self.environment, keep_alive_seconds=keep_alive_seconds) as events:
            yield events

    async def until_closed(self, job: StrictJob) -> None:
        await self.gitlab.until(lambda: job.is_closed)

    async def play(self, job: StrictJob, *, status: str = "success", reason: str = "", exit_code: int = 0) -> None:
        """The job writes its log and ends."""
        key = await self.environment.agent.job()
        await self.environment.agent.write(key, LOG)
        await self.environment.agent.end(key, status, reason, exit_code)
        await self.until_closed(job)


class Expected(list[str]):
    """Violations of which one is meant to be."""

    def __init__(self, found: list[str], meant: str) -> None:
        super().__init__(found)
        self._meant = meant

    def __iter__(self) -> Iterator[str]:
        return (text for text in super().__iter__() if self._meant not in text)
