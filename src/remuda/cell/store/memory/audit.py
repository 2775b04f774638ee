"""The part of the store in memory that keeps the audit log."""

from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.store.memory.people import MemoryPeople, page_of
from remuda.cell.values import Page
from remuda.cell.values.audit_events import ALL_EVENTS, AuditEvent, AuditFilter


class MemoryAudit(MemoryPeople):
    """Audit events."""

    def __init__(self, cell_id: int = 1) -> None:
        super().__init__(cell_id)
        self._audit_events: dict[int, AuditEvent] = {}

    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        added = replace(event, id=self._draw("audit_events"))
        self._audit_events[added.id] = added
        return added

    async def load_audit_event(self, event_id: int) -> AuditEvent | None:
        return self._audit_events.get(event_id)

    async def list_audit_events(self, page: Page, wanted: AuditFilter = ALL_EVENTS) -> tuple[Sequence[AuditEvent], int]:
        return page_of([one for one in self._audit_events.values() if wanted.fits(one)], page)

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        old = [event.id for event in self._audit_events.values() if event.created_at < before][:limit]
        for event_id in old:
            del self._audit_events[event_id]
        return len(old)
