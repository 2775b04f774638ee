"""The store's interface to the cell's settings, the keys that sign tokens, and the audit log."""

from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.cell.errors import ConflictError
from remuda.cell.store.ports.database import Database, Lock, Transaction, add_row
from remuda.cell.store.ports.tables import AUDIT_EVENTS, SETTINGS, SIGNING_KEYS, Setting, StoredKey
from remuda.cell.values import Page
from remuda.cell.values.audit_events import ALL_EVENTS, AuditEvent, AuditFilter


class SettingStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        """Return the private keys with which the cell signs tokens, as PEM texts by key id, oldest first."""
        keys = await self._database.find_all(SIGNING_KEYS, order=("number",))
        return {key.kid: key.pem for key in keys}

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        """Store a private key in PEM format that signs tokens. Raises ConflictError if the id `kid` exists already."""
        if not await self._database.add_if_absent(SIGNING_KEYS, StoredKey(kid, pem)):
            raise ConflictError(f"there is a signing key {kid} already")

    async def remove_signing_key(self, kid: str) -> None:
        await self._database.remove(SIGNING_KEYS, kid=kid)

    async def load_setting(self, name: str) -> str | None:
        setting = await self._database.find(SETTINGS, name=name)
        return setting.value if setting else None

    async def put_setting(self, name: str, value: str) -> None:
        await self._database.put(SETTINGS, Setting(name, value))

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        """Return the values of settings by name. Names without a stored value are left out."""
        settings = await self._database.find_all(SETTINGS, where=("name", "in", list(names)))
        return {setting.name: setting.value for setting in settings}

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        """Call the function `decide` with the stored value (None: not set), and store and return its result. If the
        result is None, nothing is stored."""

        async def change(rows: Transaction) -> str | None:
            setting = await rows.find(SETTINGS, name=name)
            changed = decide(setting.value if setting else None)
            if changed is not None:
                await rows.put(SETTINGS, Setting(name, changed))
            return changed

        return await self._database.change(change, Lock("setting", name))

    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        return await add_row(self._database, AUDIT_EVENTS, event)

    async def load_audit_event(self, event_id: int) -> AuditEvent | None:
        return await self._database.find(AUDIT_EVENTS, id=event_id)

    async def list_audit_events(
        self, page: Page, selection: AuditFilter = ALL_EVENTS
    ) -> tuple[Sequence[AuditEvent], int]:
        """Return one page of the audit events that match `selection`, newest first, and the total number of matches."""
        return await self._database.find_page(AUDIT_EVENTS, page, selection)

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        """Remove at most `limit` audit events that are older than `before`. Returns how many were removed."""
        return await self._database.remove_some(AUDIT_EVENTS, ("created_at", "<", before), limit=limit)
