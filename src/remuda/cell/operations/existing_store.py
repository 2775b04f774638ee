"""Opens the database of an existing cell for command line tools, migrates its schema, and reads and writes its audit
log.

The cell may run meanwhile, except for `migrate` of a SQLite file."""

import getpass
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from remuda.cell.errors import CellError
from remuda.cell.operations.data_folder import open_folder
from remuda.cell.settings import CellSettings
from remuda.cell.store import migrations, snapshots
from remuda.cell.store.open import open_store
from remuda.cell.store.ports import Store
from remuda.cell.store.snapshots import Snapshot
from remuda.cell.values import Page
from remuda.cell.values.audit_events import AuditEvent, AuditFilter


async def migrate(settings: CellSettings) -> str:
    """Migrate the database schema, or create it in an empty database. Returns the schema version."""
    if settings.is_shared:
        from remuda.cell.store.postgres.store import PostgresStore

        await (await PostgresStore.open(settings.database, settings.cell_id)).close()
    else:
        from remuda.cell.store.sqlite.store import SqliteStore

        with open_folder(settings.data, cell_id=settings.cell_id) as folder:
            await SqliteStore.open(folder.database, settings.cell_id).close()
    return migrations.HEAD


def check_revision(rows: Snapshot) -> None:
    """Raise CellError if the database does not have this release's schema version."""
    if rows.revision != migrations.HEAD:
        raise CellError(
            f"the store has schema version {rows.revision}, not {migrations.HEAD}; "
            "`remuda cell migrate` brings it up to date"
        )


@asynccontextmanager
async def open_existing_store(settings: CellSettings) -> AsyncIterator[tuple[Store, int]]:
    """Context manager: yield store and id of an existing cell. CellError without a database of the current schema."""
    async with snapshots.read(settings) as rows:
        check_revision(rows)
    store, _ = await open_store(msgspec.structs.replace(settings, cell_id=rows.cell_id))
    try:
        yield store, rows.cell_id
    finally:
        await store.close()


async def read_audit_events(settings: CellSettings, selection: AuditFilter, limit: int) -> Sequence[AuditEvent]:
    async with open_existing_store(settings) as (store, _):
        return (await store.settings.list_audit_events(Page(size=limit), selection))[0]


async def record_command(store: Store, action: str, target: str = "") -> None:
    """Write an audit event with the current system user as author: `action` is what was done, `target` to what."""
    author = f"command of {getpass.getuser()}"
    event = AuditEvent(created_at=time.time(), action=action, author_name=author, target=target)
    await store.settings.add_audit_event(event)
