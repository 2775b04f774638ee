"""SQL statements for PostgreSQL that change rows of jobs and pipelines, and functions that run them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from remuda.cell.store.postgres.database import LostRaceError, row_count, shorten
from remuda.cell.store.postgres.payload_parts import PartsQuery, select_payload_parts
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import encode
from remuda.cell.store.sql.filters import quote_states
from remuda.cell.values import UNDER_WAY, Job, Pipeline
from remuda.model.job import JobId, JobState

UPDATE_JOB = (
    "UPDATE jobs SET state = $3, retried = $4, runner_id = $5, request_id = $6, body = $7 WHERE id = $1 AND body = $2"
)


PIPELINES_LOCK = 7_236_390
"""The first half of an advisory lock; the second is the pipeline. A decision about a pipeline takes it alone; the end
of a job without such a decision shares it."""
STORE_JOBS = (
    "WITH old AS (SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::integer[], $5::bigint[], $6::text[],"
    " $7::bytea[], $8::bytea[], $9::bigint[])"
    " AS old (id, before, state, retried, runner_id, request_id, body, runner, beside_in)),"
    " ending AS MATERIALIZED (SELECT id, beside_in FROM old WHERE beside_in IS NOT NULL"
    f" AND pg_try_advisory_xact_lock_shared({PIPELINES_LOCK}, hashint8(beside_in))),"
    " beside AS (SELECT ending.id FROM ending CROSS JOIN LATERAL (SELECT FROM jobs AS further"
    " WHERE further.pipeline_id = ending.beside_in AND further.id > ending.id AND further.retried = 0"
    f" AND further.state IN ({quote_states(UNDER_WAY)}) ORDER BY further.id DESC LIMIT 1"
    " FOR SHARE SKIP LOCKED) AS further),"
    " free AS (SELECT jobs.id FROM old JOIN jobs ON jobs.id = old.id AND jobs.body = old.before"
    " WHERE (old.runner IS NULL OR EXISTS (SELECT FROM runners WHERE runners.id = old.runner_id"
    # With EXISTS the server would read all leased jobs.
    " AND runners.body = old.runner) AND (SELECT had.id FROM jobs AS had WHERE had.state = 'leased'"
    " AND had.runner_id = old.runner_id AND had.request_id = old.request_id LIMIT 1) IS NULL)"
    " AND (old.beside_in IS NULL OR old.id IN (SELECT id FROM beside))"
    " FOR NO KEY UPDATE OF jobs SKIP LOCKED)"
    " UPDATE jobs SET state = old.state, retried = old.retried, runner_id = old.runner_id,"
    " request_id = old.request_id, body = old.body FROM old JOIN free ON free.id = old.id"
    " WHERE jobs.id = old.id RETURNING 'stored' AS kind, jobs.id"
)
"""Changes of single jobs whose rows are still what was read. Rows that another transaction has locked are skipped:
waiting for one row while holding others causes deadlocks.

A job that is leased (`runner`) needs a runner that is still what was read, and a request that has no job yet. A job
that ends beside others (`beside_in` is its pipeline) needs a job with a higher id in a state of `UNDER_WAY`. The row of
that job is read while the pipeline's lock is shared. So if all jobs of a pipeline end at the same time, at least one
end is a decision about the pipeline, and that decision sees all others, because it waits until nobody shares the lock.

FOR SHARE reads a row again that changed since the statement began. FOR KEY SHARE would not, because such a change
leaves the key alone: then a job could end beside one that a decision had just ended, and the pipeline never ended.
"""


LEASE_JOBS = (
    STORE_JOBS.replace(" UPDATE jobs SET", ", stored AS (UPDATE jobs SET")
    + f") SELECT 'stored', id, 0, '', NULL FROM stored UNION ALL {select_payload_parts(10)}"
)
"""`STORE_JOBS` with the payload parts of the jobs that are leased, which every hand-out needs."""


class Write(NamedTuple):
    """A changed job. It is stored only if the column `body` of its row (the encoded job) still equals `before`, so that
    no other change is overwritten."""

    before: bytes
    job: Job
    runner: bytes | None = None
    """The encoded runner that the job is leased to."""
    query: PartsQuery | None = None
    """Finds the payload parts of a job that is leased."""
    is_beside: bool = False
    """Store it only while a job of its pipeline with a higher id is pending, leased or running."""

    def values(self) -> tuple[Any, ...]:
        return (
            *update_values(self.before, self.job),
            self.runner,
            self.job.pipeline_id if self.is_beside else None,
        )


def update_values(before: bytes, job: Job) -> tuple[Any, ...]:
    request_id = job.request_id and shorten(job.request_id)
    return (job.id, before, job.state.value, int(job.retried), job.runner_id, request_id, encode(job))


async def update_jobs(db: Connection, jobs: Sequence[Job], bodies: Mapping[JobId, bytes]) -> None:
    """Store changed jobs. `bodies` has the encoded job from each row as the caller read it. Raises LostRaceError if a
    row has changed since then."""
    if len(jobs) == 1:
        count = row_count(await db.execute(UPDATE_JOB, *update_values(bodies[jobs[0].id], jobs[0])))
    elif jobs:
        columns = zip(*(update_values(bodies[job.id], job) for job in jobs), strict=True)
        sql = (
            "UPDATE jobs SET state = new.state, retried = new.retried, runner_id = new.runner_id,"
            " request_id = new.request_id, body = new.body FROM unnest($1::bigint[], $2::bytea[], $3::text[],"
            " $4::integer[], $5::bigint[], $6::text[], $7::bytea[])"
            " AS new (id, before, state, retried, runner_id, request_id, body)"
            " WHERE jobs.id = new.id AND jobs.body = new.before"
        )
        count = row_count(await db.execute(sql, *map(list, columns)))
    else:
        return
    if count != len(jobs):
        raise LostRaceError


UPDATE_PIPELINES = (
    "UPDATE pipelines SET status = new.status, updated_at = new.updated_at, body = new.body"
    " FROM unnest($1::bigint[], $2::text[], $3::double precision[], $4::bytea[])"
    " AS new (id, status, updated_at, body) WHERE pipelines.id = new.id"
)


async def update_pipelines(db: Connection, pipelines: Sequence[Pipeline]) -> None:
    """Store changed pipelines. The caller must have locked their rows."""
    if not pipelines:
        return
    columns = zip(*((row.id, row.status, row.updated_at, encode(row)) for row in pipelines), strict=True)
    await db.execute(UPDATE_PIPELINES, *map(list, columns))


def is_news(before: JobState | None, after: JobState) -> bool:
    """Return whether other processes must be notified of this change of a job: yes if its state has changed, except
    from `leased` to `running`."""
    return before is not after and (before, after) != (JobState.LEASED, JobState.RUNNING)
