"""Opens the store of a cell: SQLite or PostgreSQL, with encrypted ("sealed") secrets. Wrong encryption keys abort the
start. Secrets that an older release stored unencrypted are encrypted first."""

from remuda.cell.secrets.key_files import CHECK, load_seals
from remuda.cell.secrets.resealing import compact, reseal
from remuda.cell.secrets.sealed_store import SealedStore
from remuda.cell.secrets.sealing import Seals
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.store.sqlite.store import SqliteStore


async def open_store(settings: CellSettings) -> tuple[Store, Seals]:
    """Return the store and the object that encrypts its secrets. Raises CellError if one of them cannot be used."""
    if settings.is_shared:
        # The import takes time that a cell with SQLite need not spend.
        from remuda.cell.store.postgres.store import PostgresStore

        store: Store = await PostgresStore.open(settings.database, settings.cell_id)
    else:
        store = SqliteStore.open(settings.data / "cell.sqlite", settings.cell_id)
    try:
        checked = await store.settings.load_setting(CHECK)
        seals = load_seals(settings, checked)
        if checked is None:
            if await reseal(settings, seals):
                compact(settings)
            # If another process was faster and has other keys, this raises and ends the start.
            await SealedStore(store, seals).settings.change_setting(CHECK, lambda stored: stored or "sealed")
    except BaseException:
        await store.close()
        raise
    return SealedStore(store, seals), seals
