"""The part of the PostgreSQL store that keeps the audit log."""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.store.postgres.access import PostgresDatabase, draw
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import encode
from remuda.cell.values import Page
from remuda.cell.values.audit_events import ALL_EVENTS, AuditEvent, AuditFilter


class PostgresAudit(PostgresDatabase):
    """Audit events."""

    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        async def add(db: Connection) -> AuditEvent:
            added = replace(event, id=(await draw(db, "audit_events"))[0])
            sql = (
                "INSERT INTO audit_events (id, created_at, action, author_id, entity_type, entity_id, body)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7)"
            )
            columns = (added.id, added.created_at, added.action, added.author_id, added.entity_type, added.entity_id)
            await db.execute(sql, *columns, encode(added))
            return added

        return await self._change(add)

    async def load_audit_event(self, event_id: int) -> AuditEvent | None:
        return await self._one(AuditEvent, "SELECT body FROM audit_events WHERE id = $1", event_id)

    async def list_audit_events(self, page: Page, wanted: AuditFilter = ALL_EVENTS) -> tuple[Sequence[AuditEvent], int]:
        return await self._page(AuditEvent, "audit_events", wanted.conditions(), page)

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        sql = "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE created_at < $1 LIMIT $2)"
        return await self._run(sql, before, limit)
