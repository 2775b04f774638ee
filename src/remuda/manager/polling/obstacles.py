"""Watches whether the jobs of one runner can run at all, so that the poller requests none while they cannot.

The reason is logged when it appears and when it is gone. A Remuda cell is told, and shows it to those who wait."""

from collections.abc import Awaitable, Callable
from typing import Any

from remuda.lib.clock import Clock
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError

LOOK_SECONDS = 10.0
"""Interval of the searches."""
REPORT_SECONDS = 60.0
"""Interval of the reports to the cell, which takes a silent manager for gone."""


class Obstacles:
    def __init__(self, find: Callable[[], Awaitable[str]] | None, client: RunnerClient, clock: Clock, log: Any) -> None:
        """`find` returns why no job can run, empty if nothing is known. None: nothing is ever in the way. `log`: the
        poller's."""
        self._find = find
        self._client = client
        self._clock = clock
        self._log = log
        self._found_at: float | None = None
        self._reported_at: float | None = None
        self._is_reporting = True
        self.problem = ""
        """Why no jobs are requested; empty: nothing is in the way."""

    async def are_gone(self) -> bool:
        """Search, unless the last search was a moment ago, and return True if jobs can run."""
        now = self._clock.monotonic()
        if self._find is not None and (self._found_at is None or now - self._found_at >= LOOK_SECONDS):
            problem = await self._find()
            self._found_at = self._clock.monotonic()
            if problem and problem != self.problem:
                self._log.error("jobs cannot run here; requesting none until they can", cause=problem)
            elif self.problem and not problem:
                self._log.info("requesting jobs again: they can run here")
            if problem != self.problem:
                self._reported_at = None
            self.problem = problem
        if self.problem:
            await self._report()
        return not self.problem

    async def _report(self) -> None:
        """Tell a cell why no jobs are requested. GitLab does not have this call; then it is not repeated."""
        now = self._clock.monotonic()
        if not self._is_reporting or (self._reported_at is not None and now - self._reported_at < REPORT_SECONDS):
            return
        self._reported_at = now
        try:
            status = await self._client.report_problem(self.problem)
        except RunnerApiTemporaryError as error:
            self._log.debug("cannot tell the server why no jobs are requested", cause=str(error))
        else:
            self._is_reporting = status != 404
