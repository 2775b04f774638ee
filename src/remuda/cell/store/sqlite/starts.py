"""The part of the SQLite store that keeps what starts pipelines (schedules, trigger tokens) and what they leave."""

import sqlite3
from collections.abc import Callable, Sequence

from msgspec.structs import replace as replaced

from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.row_bodies import encode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.access import SqliteFile
from remuda.cell.values import Release, Schedule, TriggerToken
from remuda.model.job import ProjectId


class SqliteStarts(SqliteFile):
    """Schedules, trigger tokens, releases."""

    async def add_schedule(self, schedule: Schedule) -> Schedule:
        def add(db: sqlite3.Connection) -> Schedule:
            added = replaced(schedule, id=self._draw(db, "schedules"))
            rows.put_schedule(db, added)
            return added

        return await self._write(add)

    async def load_schedule(self, schedule_id: int) -> Schedule | None:
        return self._one(Schedule, "SELECT body FROM schedules WHERE id = ?", schedule_id)

    async def list_schedules(self, project_id: ProjectId) -> Sequence[Schedule]:
        return self._all(Schedule, "SELECT body FROM schedules WHERE project_id = ? ORDER BY id", project_id)

    async def change_schedule(self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]) -> Schedule | None:
        def change(db: sqlite3.Connection) -> Schedule | None:
            kept = rows.read_schedule(db, schedule_id)
            changed = decide(kept) if kept else None
            if changed is not None:
                rows.put_schedule(db, changed)
            return changed

        return await self._write(change)

    async def remove_schedule(self, schedule_id: int) -> bool:
        sql = "DELETE FROM schedules WHERE id = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, schedule_id)))

    async def list_due_schedules(self, now: float) -> Sequence[Schedule]:
        sql = "SELECT body FROM schedules WHERE next_run_at <= ? ORDER BY next_run_at, id"
        return self._all(Schedule, sql, now)

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        def add(db: sqlite3.Connection) -> TriggerToken:
            added = replaced(trigger, id=self._draw(db, "triggers"))
            columns = (added.id, added.project_id, added.token_hash)
            try:
                rows.changed(db, "INSERT INTO triggers VALUES (?, ?, ?, ?)", *columns, encode(added))
            except sqlite3.IntegrityError:
                raise ConflictError("there is a trigger with this token already") from None
            return added

        return await self._write(add)

    async def find_trigger(self, token_hash: str) -> TriggerToken | None:
        return self._one(TriggerToken, "SELECT body FROM triggers WHERE token_hash = ?", token_hash)

    async def list_triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]:
        return self._all(TriggerToken, "SELECT body FROM triggers WHERE project_id = ? ORDER BY id", project_id)

    async def put_trigger(self, trigger: TriggerToken) -> None:
        def put(db: sqlite3.Connection) -> None:
            sql = "UPDATE triggers SET body = ? WHERE id = ?"
            if not rows.changed(db, sql, encode(trigger), trigger.id):
                raise NotFoundError(f"there is no trigger {trigger.id}")

        await self._write(put)

    async def remove_trigger(self, trigger_id: int) -> bool:
        return await self._write(lambda db: bool(rows.changed(db, "DELETE FROM triggers WHERE id = ?", trigger_id)))

    async def put_release(self, release: Release, *, replace: bool) -> bool:
        def put(db: sqlite3.Connection) -> bool:
            at = (release.project_id, release.tag)
            if rows.found(db, "SELECT 1 FROM releases WHERE project_id = ? AND tag = ?", *at) is not replace:
                return False
            rows.changed(
                db,
                "INSERT OR REPLACE INTO releases VALUES (?, ?, ?, ?)",
                *at,
                release.released_at,
                encode(release),
            )
            return True

        return await self._write(put)

    async def list_releases(self, project_id: ProjectId) -> Sequence[Release]:
        sql = "SELECT body FROM releases WHERE project_id = ? ORDER BY released_at DESC, tag DESC"
        return self._all(Release, sql, project_id)

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool:
        sql = "DELETE FROM releases WHERE project_id = ? AND tag = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, project_id, tag)))
