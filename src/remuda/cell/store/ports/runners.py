"""Runners and their managers."""

from collections.abc import Callable, Sequence
from typing import Protocol

from remuda.cell.values import Page, Runner, RunnerManager
from remuda.cell.values.people import ALL_RUNNERS, RunnerFilter
from remuda.model.job import RunnerId


class RunnerStore(Protocol):
    """Runners and runner managers."""

    async def add_runner(self, runner: Runner) -> Runner:
        """Store it with a new id. ConflictError when a runner has the token."""
        ...

    async def load_runner(self, runner_id: RunnerId) -> Runner | None: ...

    async def find_runner(self, token_hash: str) -> Runner | None: ...

    async def list_runners(self, page: Page, wanted: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]:
        """One page, newest first, and the total."""
        ...

    async def put_runner(self, runner: Runner) -> None:
        """Raises NotFoundError when the runner does not exist."""
        ...

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        """Store and return what `decide` returns; None when it returns None or the runner does not exist."""
        ...

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        """Remove the runner with its managers."""
        ...

    async def put_manager(self, manager: RunnerManager) -> None:
        """Raises NotFoundError when the runner does not exist."""
        ...

    async def load_manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None: ...

    async def list_managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        """Managers of one runner, ordered by system id."""
        ...

    async def list_all_managers(self) -> Sequence[RunnerManager]:
        """Managers of all runners, ordered by runner and system id."""
        ...

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool: ...
