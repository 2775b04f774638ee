"""The store in one SQLite file: the default, unless the cell is configured with a database server."""

from pathlib import Path
from typing import Self

from remuda.cell.store.ports import Store
from remuda.cell.store.sqlite.database import SqliteDatabase
from remuda.cell.store.sqlite.jobs import SqliteJobs
from remuda.cell.store.sqlite.pipelines import SqlitePipelines


class SqliteStore(Store):
    """A store in one SQLite file, for a single process."""

    database: SqliteDatabase

    @classmethod
    def open(cls, path: Path, cell_id: int) -> Self:
        """Open or create the file, and create or migrate its tables. Raises DataFolderError if it cannot be used."""
        database = SqliteDatabase.open(path, cell_id)
        return cls(database, SqliteJobs(database), SqlitePipelines(database))
