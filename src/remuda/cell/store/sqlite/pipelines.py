"""The SQLite implementation of the store's interface `PipelineStore`."""

import sqlite3
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.deployments import add_rows_of_jobs, change_environments
from remuda.cell.store.ports.tables import PIPELINES
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sql.filters import IS_OPEN
from remuda.cell.store.sql.lists import SqlPipelines
from remuda.cell.store.sqlite.database import SqliteDatabase, SqliteTransaction, read_family, store_error
from remuda.cell.values import Family, Pipeline
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import PipelineId

_PIPELINE = "SELECT body FROM pipelines WHERE id = ?"


class SqlitePipelines(SqlPipelines):
    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return self._database.load(Pipeline, _PIPELINE, pipeline_id)

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        db = self._database.reader
        try:
            db.execute("BEGIN")  # both reads see the same moment
            try:
                row = db.execute(_PIPELINE, (pipeline_id,)).fetchone()
                return read_family(db, decode(Pipeline, row[0])) if row else None
            finally:
                db.execute("COMMIT")
        except sqlite3.Error as error:
            raise store_error(error) from error

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        async def change(rows: SqliteTransaction) -> Applied:
            pipeline = await rows.find(PIPELINES, id=pipeline_id)
            if pipeline is None:
                raise NotFoundError(f"there is no pipeline {pipeline_id}")
            return await _apply(rows, decide(await rows.read_family(pipeline)))

        return await self._database.change(change)

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        def remove(db: sqlite3.Connection) -> bool:
            specs = db.execute("SELECT DISTINCT spec_id FROM jobs WHERE pipeline_id = ?", (pipeline_id,)).fetchall()
            for table in ("results", "artifacts", "deployments"):
                jobs = "SELECT id FROM jobs WHERE pipeline_id = ?"
                db.execute(f"DELETE FROM {table} WHERE job_id IN ({jobs})", (pipeline_id,))
            db.execute("DELETE FROM jobs WHERE pipeline_id = ?", (pipeline_id,))
            db.executemany("DELETE FROM specs WHERE id = ?", specs)
            return bool(db.execute("DELETE FROM pipelines WHERE id = ?", (pipeline_id,)).rowcount)

        return await self._database.write(remove)

    async def count_pipelines(self) -> Mapping[str, int]:
        sql = f"SELECT status, count(*) FROM pipelines WHERE {IS_OPEN} GROUP BY status"
        return dict(await self._database.read_in_thread(sql))


async def _apply(rows: SqliteTransaction, changes: Changes) -> Applied:
    for job in changes.jobs:
        await rows.update_job(job)
    new = []
    if changes.retries:
        ids = await rows.draw_job_ids(len(changes.retries))
        new = [replace(retry.job, id=id_) for retry, id_ in zip(changes.retries, ids, strict=True)]
        spec = "SELECT spec_id FROM jobs WHERE id = ?"
        specs = [rows.db.execute(spec, (retry.of,)).fetchone()[0] for retry in changes.retries]
        await rows.add_tries(list(zip(new, specs, strict=True)))
        await add_rows_of_jobs(rows, new, changes.pipeline, now=new[0].created_at)
    await change_environments(rows, changes)
    if changes.pipeline:
        changed = changes.pipeline
        await rows.execute(
            "UPDATE pipelines SET status = $1, body = $2 WHERE id = $3", changed.status, encode(changed), changed.id
        )
    return Applied(jobs=(*changes.jobs, *new), pipeline=changes.pipeline)
