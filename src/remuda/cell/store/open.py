"""Opens the store of a cell: SQLite or PostgreSQL, with encrypted ("sealed") secrets.

The encryption keys are loaded first, or created for a store that has no secrets yet; wrong keys abort the start.
Secrets that an older release stored unencrypted are encrypted before the store is used. The service and all commands
open a store with `open_store`.
"""

from remuda.cell.secrets.key_files import CHECK, load_seals
from remuda.cell.secrets.resealing import compact, reseal
from remuda.cell.secrets.sealed_store import SealedStore
from remuda.cell.secrets.sealing import Seals
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.store.sqlite.store import SqliteStore


async def open_store(settings: CellSettings) -> tuple[Store, Seals]:
    """Open the store of a cell. Returns the store and the object that encrypts and decrypts its secrets.

    Raises CellError if the store or the encryption keys cannot be used.
    """
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
