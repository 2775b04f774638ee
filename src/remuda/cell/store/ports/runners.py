"""The store's interface to runners and their managers (the processes that poll for jobs with a runner's token)."""

from collections.abc import Callable, Sequence

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.database import Database, Transaction, add_row, change_row
from remuda.cell.store.ports.tables import MANAGERS, RUNNERS
from remuda.cell.values import Page, Runner, RunnerManager
from remuda.cell.values.people import ALL_RUNNERS, RunnerFilter
from remuda.model.job import RunnerId

RunnerListener = Callable[[RunnerId], None]


class RunnerStore:
    def __init__(self, database: Database, listeners: Sequence[RunnerListener] = ()) -> None:
        self._database = database
        self._listeners = listeners

    async def add_runner(self, runner: Runner) -> Runner:
        """Store a runner with a new id. Raises ConflictError if another runner has the same token."""
        return await add_row(self._database, RUNNERS, runner, taken="there is a runner with this token already")

    async def load_runner(self, runner_id: RunnerId) -> Runner | None:
        return await self._database.find(RUNNERS, id=runner_id)

    async def find_runner(self, token_hash: str) -> Runner | None:
        return await self._database.find(RUNNERS, token_hash=token_hash)

    async def list_runners(self, page: Page, selection: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]:
        """Return one page of the runners that match `selection`, newest first, and the total number of matches."""
        return await self._database.find_page(RUNNERS, page, selection)

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        """Store and return what `decide` returns for a runner; None if it returns None or there is no such runner."""
        changed = await change_row(self._database, RUNNERS, runner_id, decide)
        if changed is not None:
            self._announce(runner_id)
        return changed

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        async def remove(rows: Transaction) -> bool:
            await rows.remove(MANAGERS, runner_id=runner_id)
            return bool(await rows.remove(RUNNERS, id=runner_id))

        is_removed = await self._database.change(remove)
        if is_removed:
            self._announce(runner_id)
        return is_removed

    def _announce(self, runner_id: RunnerId) -> None:
        for listener in self._listeners:
            listener(runner_id)
        self._database.announce_runner(runner_id)

    async def put_manager(self, manager: RunnerManager) -> None:
        """Add or replace a manager of a runner. Raises NotFoundError if the runner does not exist."""
        if not await self._database.put_inside(MANAGERS, manager, RUNNERS, manager.runner_id):
            raise NotFoundError(f"there is no runner {manager.runner_id}")

    async def load_manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None:
        return await self._database.find(MANAGERS, runner_id=runner_id, system_id=system_id)

    async def list_managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        """Return the managers of one runner, ordered by system id."""
        return await self._database.find_all(MANAGERS, order=("system_id",), runner_id=runner_id)

    async def list_all_managers(self) -> Sequence[RunnerManager]:
        """Return the managers of all runners, ordered by runner and system id."""
        return await self._database.find_all(MANAGERS, order=("runner_id", "system_id"))

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool:
        return bool(await self._database.remove(MANAGERS, runner_id=runner_id, system_id=system_id))
