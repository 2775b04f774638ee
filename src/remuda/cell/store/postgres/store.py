"""The store in a PostgreSQL database, for cells with several processes, or with too much load for a SQLite file."""

from typing import Self

from remuda.cell.store.ports import Store
from remuda.cell.store.postgres.database import PostgresDatabase
from remuda.cell.store.postgres.jobs import PostgresJobs
from remuda.cell.store.postgres.pipelines import PostgresPipelines


class PostgresStore(Store):
    database: PostgresDatabase

    @classmethod
    async def open(cls, url: str, cell_id: int) -> Self:
        """Connect, and create or migrate the tables. Raises DataFolderError if the database cannot be used."""
        database = await PostgresDatabase.open(url, cell_id)
        return cls(database, PostgresJobs(database), PostgresPipelines(database))
