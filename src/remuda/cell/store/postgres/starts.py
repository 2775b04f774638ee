"""The part of the PostgreSQL store that keeps what starts pipelines (schedules, trigger tokens) and what they leave."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace as replaced

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.postgres import rows
from remuda.cell.store.postgres.access import PostgresDatabase, draw
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import encode
from remuda.cell.values import Release, Schedule, TriggerToken
from remuda.model.job import ProjectId


class PostgresStarts(PostgresDatabase):
    """Schedules, trigger tokens, releases."""

    async def add_schedule(self, schedule: Schedule) -> Schedule:
        async def add(db: Connection) -> Schedule:
            added = replaced(schedule, id=(await draw(db, "schedules"))[0])
            await db.execute(rows.PUT_SCHEDULE, *rows.schedule_values(added))
            return added

        return await self._change(add)

    async def load_schedule(self, schedule_id: int) -> Schedule | None:
        return await self._one(Schedule, "SELECT body FROM schedules WHERE id = $1", schedule_id)

    async def list_schedules(self, project_id: ProjectId) -> Sequence[Schedule]:
        return await self._all(Schedule, "SELECT body FROM schedules WHERE project_id = $1 ORDER BY id", project_id)

    async def change_schedule(self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]) -> Schedule | None:
        async def change(db: Connection) -> Schedule | None:
            kept = await rows.read_schedule(db, schedule_id)
            changed = decide(kept) if kept else None
            if changed is not None:
                await db.execute(rows.PUT_SCHEDULE, *rows.schedule_values(changed))
            return changed

        return await self._change(change)

    async def remove_schedule(self, schedule_id: int) -> bool:
        return bool(await self._run("DELETE FROM schedules WHERE id = $1", schedule_id))

    async def list_due_schedules(self, now: float) -> Sequence[Schedule]:
        sql = "SELECT body FROM schedules WHERE next_run_at <= $1 ORDER BY next_run_at, id"
        return await self._all(Schedule, sql, now)

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        async def add(db: Connection) -> TriggerToken:
            if await db.fetchval("SELECT 1 FROM triggers WHERE token_hash = $1", trigger.token_hash):
                raise ConflictError("there is a trigger with this token already")
            added = replaced(trigger, id=(await draw(db, "triggers"))[0])
            sql = "INSERT INTO triggers (id, project_id, token_hash, body) VALUES ($1, $2, $3, $4)"
            await db.execute(sql, added.id, added.project_id, added.token_hash, encode(added))
            return added

        return await self._change(add)

    async def find_trigger(self, token_hash: str) -> TriggerToken | None:
        return await self._one(TriggerToken, "SELECT body FROM triggers WHERE token_hash = $1", token_hash)

    async def list_triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]:
        return await self._all(TriggerToken, "SELECT body FROM triggers WHERE project_id = $1 ORDER BY id", project_id)

    async def put_trigger(self, trigger: TriggerToken) -> None:
        if not await self._run("UPDATE triggers SET body = $1 WHERE id = $2", encode(trigger), trigger.id):
            raise NotFoundError(f"there is no trigger {trigger.id}")

    async def remove_trigger(self, trigger_id: int) -> bool:
        return bool(await self._run("DELETE FROM triggers WHERE id = $1", trigger_id))

    async def put_release(self, release: Release, *, replace: bool) -> bool:
        sql = (
            "UPDATE releases SET released_at = $3, body = $4 WHERE project_id = $1 AND tag = $2"
            if replace
            else "INSERT INTO releases (project_id, tag, released_at, body) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT DO NOTHING"
        )
        return bool(await self._run(sql, release.project_id, release.tag, release.released_at, encode(release)))

    async def list_releases(self, project_id: ProjectId) -> Sequence[Release]:
        sql = "SELECT body FROM releases WHERE project_id = $1 ORDER BY released_at DESC, tag DESC"
        return await self._all(Release, sql, project_id)

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool:
        return bool(await self._run("DELETE FROM releases WHERE project_id = $1 AND tag = $2", project_id, tag))
