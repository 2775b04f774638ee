"""Opens a cell's store: the right kind of database, with its secrets sealed.

Decided here: the order. The keys are found, or made for a store that has no secrets yet, before anything is read or
written; wrong ones end the start. What an older release left unsealed is sealed before the store is used. The service
and the commands that work on a store open it here, and nowhere else.
"""

from remuda.cell.secrets.key_files import CHECK, seals_for
from remuda.cell.secrets.resealing import compact, reseal
from remuda.cell.secrets.sealed_store import SealedStore
from remuda.cell.secrets.sealing import Seals
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.store.sqlite.store import SqliteStore


async def open_store(settings: CellSettings) -> tuple[Store, Seals]:
    """The store of a cell, and what its secrets are sealed with; CellError when it cannot be used."""
    if settings.is_shared:
        # Only those who use it pay for its import.
        from remuda.cell.store.postgres.store import PostgresStore

        store: Store = await PostgresStore.open(settings.database, settings.cell_id)
    else:
        store = SqliteStore.open(settings.data / "cell.sqlite", settings.cell_id)
    try:
        checked = await store.settings.load_setting(CHECK)
        seals = seals_for(settings, checked)
        if checked is None:
            if await reseal(settings, seals):
                compact(settings)
            # Another process may have been quicker; if it has other keys than this one, this ends the start.
            await SealedStore(store, seals).settings.change_setting(CHECK, lambda kept: kept or "sealed")
    except BaseException:
        await store.close()
        raise
    return SealedStore(store, seals), seals
