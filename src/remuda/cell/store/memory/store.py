"""The in-memory store, which behaves like the SQLite store, for tests (`remuda.testing`). A separate module, so that
every store is found in the same place: `memory.store`, `sqlite.store`, `postgres.store`."""

from remuda.cell.store.memory.database import MemoryDatabase
from remuda.cell.store.memory.jobs import MemoryJobs
from remuda.cell.store.memory.pipelines import MemoryPipelines
from remuda.cell.store.ports import Store


class MemoryStore(Store):
    """A store whose data is lost when the process ends."""

    def __init__(self, cell_id: int = 1) -> None:
        database = MemoryDatabase(cell_id)
        super().__init__(database, MemoryJobs(database), MemoryPipelines(database))
