"""The part of the SQLite store that keeps the audit log."""

import sqlite3
from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.store.row_bodies import encode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.access import SqliteFile
from remuda.cell.values import Page
from remuda.cell.values.audit_events import ALL_EVENTS, AuditEvent, AuditFilter


class SqliteAudit(SqliteFile):
    """Audit events."""

    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        def add(db: sqlite3.Connection) -> AuditEvent:
            added = replace(event, id=self._draw(db, "audit_events"))
            columns = (added.id, added.created_at, added.action, added.author_id, added.entity_type, added.entity_id)
            rows.changed(db, "INSERT INTO audit_events VALUES (?, ?, ?, ?, ?, ?, ?)", *columns, encode(added))
            return added

        return await self._write(add)

    async def load_audit_event(self, event_id: int) -> AuditEvent | None:
        return self._one(AuditEvent, "SELECT body FROM audit_events WHERE id = ?", event_id)

    async def list_audit_events(self, page: Page, wanted: AuditFilter = ALL_EVENTS) -> tuple[Sequence[AuditEvent], int]:
        return self._page(AuditEvent, "audit_events", wanted.conditions(), page)

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        sql = "DELETE FROM audit_events WHERE id IN (SELECT id FROM audit_events WHERE created_at < ? LIMIT ?)"
        return await self._write(lambda db: rows.changed(db, sql, before, limit))
