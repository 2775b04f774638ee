"""Settings of the cell, its signing keys and its audit log."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from remuda.cell.values import Page
from remuda.cell.values.audit_events import ALL_EVENTS, AuditEvent, AuditFilter


class SettingStore(Protocol):
    """Settings, signing keys and audit events."""

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        """PEM by key id, oldest first."""
        ...

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        """Raises ConflictError when the key id exists."""
        ...

    async def remove_signing_key(self, kid: str) -> None: ...

    async def load_setting(self, name: str) -> str | None: ...

    async def put_setting(self, name: str, value: str) -> None: ...

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        """Names without a value are left out."""
        ...

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        """Store what `decide` returns for the current value; None leaves it unchanged. Returns the new value."""
        ...

    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        """Store it with a new id."""
        ...

    async def load_audit_event(self, event_id: int) -> AuditEvent | None: ...

    async def list_audit_events(self, page: Page, wanted: AuditFilter = ALL_EVENTS) -> tuple[Sequence[AuditEvent], int]:
        """One page, newest first, and the total."""
        ...

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        """Remove at most `limit` events that are older than `before`. Returns how many were removed."""
        ...
