"""Runs a manager with the strict GitLab server, for tests that enqueue jobs, plan answers and check the result."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.runners.manager_harness import ManagerEvents, ManagerHarness
from tests.support.runners.strict_gitlab import RUNNER_TOKEN, StrictGitLab, StrictJob

from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment

LOG = b"some bytes\n"


class Scenario:
    """A manager that is connected to the server. The test plays the agent's part of jobs, or a real agent runs them."""

    def __init__(self, folder: Path, gitlab: StrictGitLab, environment: FakeEnvironment) -> None:
        self.gitlab = gitlab
        self.environment = environment
        self.harness = ManagerHarness(folder, Coordinator())
        self.harness.config.write_text(
            f'concurrent = 2\ncheck_interval = 0.2\n[[runners]]\nurl = "{gitlab.url}/"\n'
            f'token = "{RUNNER_TOKEN}"\nexecutor = "shell"\n'
        )

    @asynccontextmanager
    async def manager(self, *, keep_alive_seconds: float = 30.0) -> AsyncIterator[ManagerEvents]:
        async with self.harness.manager(self.environment, keep_alive_seconds=keep_alive_seconds) as events:
            yield events

    async def until_closed(self, job: StrictJob) -> None:
        await self.gitlab.until(lambda: job.is_closed)

    async def play(self, job: StrictJob, *, status: str = "success", reason: str = "", exit_code: int = 0) -> None:
        """Let the agent write the job's log and end the job; wait until the client has closed it."""
        key = await self.environment.agent.job()
        await self.environment.agent.write(key, LOG)
        await self.environment.agent.end(key, status, reason, exit_code)
        await self.until_closed(job)


class ViolationsExcept(list[str]):
    """A list of violations that ignores those which contain the expected text."""

    def __init__(self, violations: list[str], expected: str) -> None:
        super().__init__(violations)
        self._expected = expected

    def __iter__(self) -> Iterator[str]:
        return (text for text in super().__iter__() if self._expected not in text)
