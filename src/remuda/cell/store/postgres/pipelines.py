"""The PostgreSQL implementation of `PipelineStore`, for several processes at the same time. A pipeline's row is locked
while a change of its jobs is computed and stored, a project's row while it gets a pipeline, and all resource groups of
a project while one is given to a job. Meanwhile a runner may get a job of the pipeline that the change does not touch;
the result is the same as if that runner had asked after the change."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports.deployments import add_rows_of_jobs, change_environments
from remuda.cell.store.ports.tables import PIPELINES
from remuda.cell.store.postgres import job_statements
from remuda.cell.store.postgres.database import (
    AWAY,
    FAILURES,
    TAKEN_GROUPS,
    LostRaceError,
    PostgresDatabase,
    PostgresTransaction,
    group_query_values,
    groups_by_column,
    select_by_key,
    store_error,
)
from remuda.cell.store.postgres.families import (
    FAMILIES,
    FamilyChange,
    FamilyDecision,
    change_families,
    lock_statement,
    read_families,
)
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.sql.filters import IS_OPEN
from remuda.cell.store.sql.lists import SqlPipelines
from remuda.cell.store.write_batching import WriteBatcher
from remuda.cell.values import Family, NewJob, Pipeline, Schedule
from remuda.cell.values.changes import Applied, Changes
from remuda.model.job import JobId, JobState, PipelineId

_LANES = 2
_OPTIMISTIC_TRIES = 3
"""How often the jobs of a family are changed without locks before their rows are locked."""


class PostgresPipelines(SqlPipelines):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._database = database
        # One at a time in each lane: decisions about one pipeline wait for each other anyway.
        self._lanes = [WriteBatcher(self._change_families, lanes=1) for _ in range(_LANES)]
        database.frequent |= {job_statements.UPDATE_PIPELINES: 4, FAMILIES: 1, select_by_key("pipelines", "id", int): 1}

    async def add_pipeline(
        self,
        pipeline: Pipeline,
        jobs: Sequence[NewJob],
        *,
        now: float,
        sees: tuple[str, str] | None = None,
        schedule: Schedule | None = None,
        due_at: float | None = None,
    ) -> Family:
        family = await super().add_pipeline(pipeline, jobs, now=now, sees=sees, schedule=schedule, due_at=due_at)
        self._database.notifications.send(job for job in family.jobs if job.state is JobState.PENDING)
        return family

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return await self._database.find(PIPELINES, id=pipeline_id)

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        families, _ = read_families(await self._database.fetch(FAMILIES, [pipeline_id]))
        family = families.get(pipeline_id)
        if family and (groups := groups_by_column(family.jobs)):
            fetched = await self._database.fetch(TAKEN_GROUPS, *group_query_values(family.pipeline, groups))
            family = replace(family, taken=frozenset(groups[row[0]] for row in fetched))
        return family

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        change = await self._lanes[pipeline_id % _LANES].submit(FamilyDecision(pipeline_id, decide))
        if change is None:
            change = await self._change_alone(pipeline_id, decide)
        elif change.error is not None:
            raise change.error
        applied = change.applied
        before = {job.id: job.state for job in change.before.jobs} if change.before else {}
        news = (
            job for job in applied.jobs if applied.pipeline or job_statements.is_news(before.get(job.id), job.state)
        )
        self._database.notifications.send(news)
        return applied

    async def _change_families(self, decisions: Sequence[FamilyDecision]) -> Sequence[FamilyChange | None]:
        try:
            async with self._database.begin(
                lock_statement(decision.pipeline_id for decision in decisions), keyed=True
            ) as db:
                return await change_families(db, decisions)
        except (LostRaceError, *FAILURES) as error:
            if isinstance(error, AWAY):
                raise store_error(error) from error
            return [None] * len(decisions)

    async def _change_alone(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> FamilyChange:
        tries = 0

        async def change(db: Connection) -> FamilyChange:
            nonlocal tries
            tries += 1
            if tries > _OPTIMISTIC_TRIES:
                await db.execute("SELECT FROM jobs WHERE pipeline_id = $1 ORDER BY id FOR UPDATE", pipeline_id)
            families, bodies = read_families(await db.fetch(FAMILIES, [pipeline_id]))
            if pipeline_id not in families:
                raise NotFoundError(f"there is no pipeline {pipeline_id}")
            family = families[pipeline_id]
            occupied = await PostgresTransaction(db).find_taken_groups(family.pipeline, family.jobs)
            family = replace(family, taken=occupied)
            return FamilyChange(family, await _apply(PostgresTransaction(db), decide(family), bodies))

        return await self._database.transact(change, lock_statement([pipeline_id]))

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        async def remove(db: Connection) -> bool:
            for table in ("results", "artifacts", "deployments"):
                jobs = "SELECT id FROM jobs WHERE pipeline_id = $1"
                await db.execute(f"DELETE FROM {table} WHERE job_id IN ({jobs})", pipeline_id)
            removed = await db.fetch("DELETE FROM jobs WHERE pipeline_id = $1 RETURNING spec_id", pipeline_id)
            await db.execute("DELETE FROM specs WHERE id = ANY($1::bigint[])", list({row[0] for row in removed}))
            return await db.fetchval("DELETE FROM pipelines WHERE id = $1 RETURNING true", pipeline_id) is True

        sql = f"SELECT FROM pipelines WHERE id = {int(pipeline_id)} FOR UPDATE"
        return await self._database.transact(remove, sql)

    async def count_pipelines(self) -> Mapping[str, int]:
        sql = f"SELECT status, count(*) FROM pipelines WHERE {IS_OPEN} GROUP BY status"
        return dict(tuple(row) for row in await self._database.fetch(sql))


async def _apply(transaction: PostgresTransaction, changes: Changes, bodies: Mapping[JobId, bytes]) -> Applied:
    await job_statements.update_jobs(transaction.db, changes.jobs, bodies)
    new = []
    if changes.retries:
        sql = "SELECT id, spec_id FROM jobs WHERE id = ANY($1::bigint[])"
        specs = dict(tuple(row) for row in await transaction.fetch(sql, [retry.of for retry in changes.retries]))
        ids = await transaction.draw_job_ids(len(changes.retries))
        new = [replace(retry.job, id=id_) for retry, id_ in zip(changes.retries, ids, strict=True)]
        await transaction.add_tries([(job, specs[retry.of]) for job, retry in zip(new, changes.retries, strict=True)])
        await add_rows_of_jobs(transaction, new, changes.pipeline, now=new[0].created_at)
    await change_environments(transaction, changes)
    if changes.pipeline:
        await job_statements.update_pipelines(transaction.db, [changes.pipeline])
    return Applied(jobs=(*changes.jobs, *new), pipeline=changes.pipeline)
