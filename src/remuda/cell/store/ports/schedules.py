"""The store's interface to pipeline schedules, trigger tokens and releases."""

from collections.abc import Callable, Sequence

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.database import Database, add_row, change_row
from remuda.cell.store.ports.tables import RELEASES, SCHEDULES, TRIGGERS
from remuda.cell.values import Release, Schedule, TriggerToken
from remuda.model.job import ProjectId


class ScheduleStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_schedule(self, schedule: Schedule) -> Schedule:
        return await add_row(self._database, SCHEDULES, schedule)

    async def load_schedule(self, schedule_id: int) -> Schedule | None:
        return await self._database.find(SCHEDULES, id=schedule_id)

    async def list_schedules(self, project_id: ProjectId) -> Sequence[Schedule]:
        return await self._database.find_all(SCHEDULES, order=("id",), project_id=project_id)

    async def change_schedule(self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]) -> Schedule | None:
        """Store and return what `decide` returns for a schedule; None if it returns None or there is no such one."""
        return await change_row(self._database, SCHEDULES, schedule_id, decide)

    async def remove_schedule(self, schedule_id: int) -> bool:
        return bool(await self._database.remove(SCHEDULES, id=schedule_id))

    async def list_due_schedules(self, now: float) -> Sequence[Schedule]:
        """Return the active schedules whose next run is due at `now`, the longest due first."""
        order = ("next_run_at", "id")
        return await self._database.find_all(SCHEDULES, where=("next_run_at", "<=", now), order=order)

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        """Store a trigger token with a new id. Raises ConflictError if the token exists already."""
        return await add_row(self._database, TRIGGERS, trigger, taken="there is a trigger with this token already")

    async def find_trigger(self, token_hash: str) -> TriggerToken | None:
        return await self._database.find(TRIGGERS, token_hash=token_hash)

    async def list_triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]:
        return await self._database.find_all(TRIGGERS, order=("id",), project_id=project_id)

    async def put_trigger(self, trigger: TriggerToken) -> None:
        """Replace a stored trigger token. Raises NotFoundError if it does not exist."""
        if not await self._database.update(TRIGGERS, trigger):
            raise NotFoundError(f"there is no trigger {trigger.id}")

    async def remove_trigger(self, trigger_id: int) -> bool:
        return bool(await self._database.remove(TRIGGERS, id=trigger_id))

    async def put_release(self, release: Release, *, replace: bool) -> bool:
        """Add a release, or overwrite it with `replace`. Returns False if it exists, with `replace` if it does not."""
        put = self._database.update if replace else self._database.add_if_absent
        return await put(RELEASES, release)

    async def list_releases(self, project_id: ProjectId) -> Sequence[Release]:
        """Return the releases of a project, newest first."""
        order = ("released_at DESC", "tag DESC")
        return await self._database.find_all(RELEASES, order=order, project_id=project_id)

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool:
        return bool(await self._database.remove(RELEASES, project_id=project_id, tag=tag))
