"""How values become rows of the PostgreSQL store and rows become values again. Called inside a transaction."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from remuda.cell.errors import NotFoundError
from remuda.cell.store.ports import Belongings
from remuda.cell.store.postgres.access import LostRaceError, changed, plain
from remuda.cell.store.postgres.pool import Connection
from remuda.cell.store.row_bodies import decode, decode_again, decode_job, encode
from remuda.cell.store.sqlite.rows import in_words
from remuda.cell.values import (
    UNDER_WAY,
    Artifact,
    Family,
    Job,
    Pipeline,
    PipelineFilter,
    Project,
    ProjectVariable,
    Schedule,
)
from remuda.model.job import OCCUPYING, JobId, PipelineId, ProjectId
from remuda.pipeline import JobSpec

T = TypeVar("T")

FAMILY = (
    "SELECT body FROM (SELECT 0 AS id, body FROM pipelines WHERE id = $1"
    " UNION ALL SELECT id, body FROM jobs WHERE pipeline_id = $1 AND retried = 0) AS family ORDER BY id"
)
"""In one statement, so that all of it is of the same moment."""
TAKEN = (
    "SELECT DISTINCT resource_group FROM jobs WHERE project_id = $1 AND pipeline_id != $2"
    " AND resource_group = ANY($3::text[]) AND state = ANY($4::text[])"
)
PUT_SCHEDULE = (
    "INSERT INTO schedules (id, project_id, next_run_at, body) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (id) DO UPDATE SET next_run_at = excluded.next_run_at, body = excluded.body"
)
SEE_REF = (
    "INSERT INTO seen_refs (project_id, ref, sha) VALUES ($1, $2, $3)"
    " ON CONFLICT (project_id, ref) DO UPDATE SET sha = excluded.sha"
)
ARTIFACTS = "SELECT body FROM artifacts WHERE job_id = $1 ORDER BY type"
PUT_ARTIFACT = (
    "INSERT INTO artifacts (job_id, type, look_at, body) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (job_id, type) DO UPDATE SET look_at = excluded.look_at, body = excluded.body"
)
_GROUPS_LOCK = 7_236_388
"""The first half of an advisory lock; the second is the project."""


class Read:
    """A family as it was read, with the bytes of each job: what is changed must still be what was read."""

    def __init__(self, family: Family, bodies: Mapping[JobId, bytes]) -> None:
        self.family = family
        self.bodies = bodies


async def read_family(db: Connection, pipeline_id: PipelineId, *, jobs_too: bool) -> Read:
    """The family of a pipeline whose row is locked; `jobs_too`: those of its jobs as well."""
    if jobs_too:
        await db.execute("SELECT FROM jobs WHERE pipeline_id = $1 ORDER BY id FOR UPDATE", pipeline_id)
    found = [row[0] for row in await db.fetch(FAMILY, pipeline_id)]
    if not found:
        raise NotFoundError(f"there is no pipeline {pipeline_id}")
    pipeline, jobs = decode(Pipeline, found[0]), tuple(map(decode_job, found[1:]))
    bodies = {job.id: body for job, body in zip(jobs, found[1:], strict=True)}
    taken = await taken_groups(db, pipeline, jobs)
    return Read(Family(pipeline=pipeline, jobs=jobs, taken=taken), bodies)


async def taken_groups(db: Connection, pipeline: Pipeline, jobs: Iterable[Job]) -> frozenset[str]:
    """The resource groups that a job of another pipeline has. Nobody else of the project decides until the commit."""
    if not (wanted := groups(jobs)):
        return frozenset()
    await db.execute("SELECT pg_advisory_xact_lock($1, hashint8($2))", _GROUPS_LOCK, pipeline.project_id)
    return found_groups(wanted, await db.fetch(TAKEN, *taken_values(pipeline, wanted)))


def groups(jobs: Iterable[Job]) -> dict[str, str]:
    """The resource groups that jobs name, by what stands in the column."""
    return {plain(job.resource_group): job.resource_group for job in jobs if job.resource_group}


def taken_values(pipeline: Pipeline, wanted: Mapping[str, str]) -> tuple[Any, ...]:
    """What `TAKEN` is asked with."""
    return pipeline.project_id, pipeline.id, list(wanted), [state.value for state in OCCUPYING]


def found_groups(wanted: Mapping[str, str], rows: Iterable[Any]) -> frozenset[str]:
    """What `TAKEN` answered."""
    return frozenset(wanted[row[0]] for row in rows)


async def add_jobs(db: Connection, jobs: Sequence[tuple[Job, int]]) -> None:
    """New jobs, each with the id of its spec."""
    sql = (
        "INSERT INTO jobs (id, project_id, pipeline_id, spec_id, state, retried, runner_id, request_id, body,"
        " resource_group, is_trigger, ref, name) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    )
    await db.executemany(
        sql,
        [
            (
                job.id,
                job.project_id,
                job.pipeline_id,
                spec_id,
                job.state.value,
                int(job.retried),
                job.runner_id,
                job.request_id and plain(job.request_id),
                encode(job),
                plain(job.resource_group) or None,
                int(job.is_trigger),
                plain(job.ref),
                plain(job.name),
            )
            for job, spec_id in jobs
        ],
    )


UPDATE_JOB = (
    "UPDATE jobs SET state = $3, retried = $4, runner_id = $5, request_id = $6, body = $7 WHERE id = $1 AND body = $2"
)


PIPELINES_LOCK = 7_236_390
"""The first half of an advisory lock; the second is the pipeline. Decisions about a pipeline take it for themselves;
whoever ends a job of it without such a decision shares it."""
STORE_JOBS = (
    "WITH old AS (SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[], $4::integer[], $5::bigint[], $6::text[],"
    " $7::bytea[], $8::bytea[], $9::bigint[])"
    " AS old (id, before, state, retried, runner_id, request_id, body, runner, beside_in)),"
    " ending AS MATERIALIZED (SELECT id, beside_in FROM old WHERE beside_in IS NOT NULL"
    f" AND pg_try_advisory_xact_lock_shared({PIPELINES_LOCK}, hashint8(beside_in))),"
    " beside AS (SELECT ending.id FROM ending CROSS JOIN LATERAL (SELECT FROM jobs AS further"
    " WHERE further.pipeline_id = ending.beside_in AND further.id > ending.id AND further.retried = 0"
    f" AND further.state IN ({in_words(UNDER_WAY)}) ORDER BY further.id DESC LIMIT 1"
    " FOR SHARE SKIP LOCKED) AS further),"
    " free AS (SELECT jobs.id FROM old JOIN jobs ON jobs.id = old.id AND jobs.body = old.before"
    " WHERE (old.runner IS NULL OR EXISTS (SELECT FROM runners WHERE runners.id = old.runner_id"
    # As EXISTS the server would read all that are leased.
    " AND runners.body = old.runner) AND (SELECT had.id FROM jobs AS had WHERE had.state = 'leased'"
    " AND had.runner_id = old.runner_id AND had.request_id = old.request_id LIMIT 1) IS NULL)"
    " AND (old.beside_in IS NULL OR old.id IN (SELECT id FROM beside))"
    " FOR NO KEY UPDATE OF jobs SKIP LOCKED)"
    " UPDATE jobs SET state = old.state, retried = old.retried, runner_id = old.runner_id,"
    " request_id = old.request_id, body = old.body FROM old JOIN free ON free.id = old.id"
    " WHERE jobs.id = old.id RETURNING 'stored' AS kind, jobs.id"
)
"""Changes of single jobs: of those that are still what was read, and that nobody else is changing. Waiting for one row
while having others is how transactions come to wait for each other.

One that is leased (`runner`) needs a runner that is still what was read, and a call that has no job yet. One that ends
beside others (`beside_in` its pipeline) needs a further job that is under way. That one has a higher id, and is looked
at as it is when the pipeline's lock is shared: so of all jobs of a pipeline that end at the same time, the end of at
least one is a decision about the pipeline, and that one sees all others, because it waits until nobody shares the lock.
Looked at as it is: FOR SHARE reads a row again that was changed since the statement began. FOR KEY SHARE would not,
because such a change leaves the key alone; then a job ended beside one that a decision had just ended, and nobody was
left to end the pipeline.
"""


def _belongings(first: int) -> str:
    """What the payloads of jobs are made of. The values are lists: jobs, pipelines, projects, groups, settings."""
    jobs, pipelines, projects, groups = (f"ANY(${number}::bigint[])" for number in range(first, first + 4))
    return (
        "SELECT 'spec' AS kind, jobs.id, 0 AS group_id, '' AS name, specs.body"
        f" FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = {jobs}"
        f" UNION ALL SELECT 'pipeline', id, 0, '', body FROM pipelines WHERE id = {pipelines}"
        f" UNION ALL SELECT 'project', id, 0, '', body FROM projects WHERE id = {projects}"
        " UNION ALL SELECT 'variable', project_id, group_id, '', body FROM variables"
        f" WHERE project_id = 0 AND group_id = {groups}"
        " UNION ALL SELECT 'variable', project_id, group_id, '', body FROM variables"
        f" WHERE project_id = {projects} AND group_id = 0"
        " UNION ALL SELECT 'setting', 0, 0, name, convert_to(value, 'UTF8') FROM settings"
        f" WHERE name = ANY(${first + 4}::text[])"
    )


BELONGINGS = _belongings(1)
LEASE_JOBS = (
    STORE_JOBS.replace(" UPDATE jobs SET", ", stored AS (UPDATE jobs SET")
    + f") SELECT 'stored', id, 0, '', NULL FROM stored UNION ALL {_belongings(10)}"
)
"""The same with the belongings of those that are leased, which every hand-out needs."""


class Wish(NamedTuple):
    """A job whose belongings are wanted, with the names of settings."""

    job_id: JobId
    pipeline_id: PipelineId
    project_id: ProjectId
    group_ids: tuple[int, ...]
    settings: tuple[str, ...]

    @classmethod
    def of(cls, job: Job, settings: Collection[str]) -> "Wish":
        # 0 is the cell.
        return cls(job.id, job.pipeline_id, job.project_id, (0, *job.group_ids), tuple(settings))


def wish_values(wishes: Iterable[Wish]) -> tuple[list[Any], ...]:
    """What `BELONGINGS` is asked with."""
    wishes = list(wishes)
    return (
        list({wish.job_id for wish in wishes}),
        list({wish.pipeline_id for wish in wishes}),
        list({wish.project_id for wish in wishes}),
        list({group for wish in wishes for group in wish.group_ids}),
        list({name for wish in wishes for name in wish.settings}),
    )


def fulfilled(wishes: Iterable[Wish], found: Iterable[Any]) -> dict[Wish, Belongings]:
    """What `BELONGINGS` answered."""
    one: dict[tuple[str, int], Any] = {}
    variables: defaultdict[tuple[int, int], list[ProjectVariable]] = defaultdict(list)
    settings: dict[str, str] = {}
    for kind, id_, group_id, name, body in found:
        if kind == "variable":
            variables[id_, group_id].append(decode_again(ProjectVariable, body))
        elif kind == "setting":
            settings[name] = body.decode()
        elif kind != "stored":
            one[kind, id_] = body
    for some in variables.values():
        some.sort(key=lambda each: (each.key, each.environment_scope))

    def decoded(kind: type[T], name: str, id_: int) -> T | None:
        body = one.get((name, id_))
        if body is None:
            return None
        # Each spec is one job's.
        return decode(kind, body) if name == "spec" else decode_again(kind, body)

    return {
        wish: Belongings(
            spec=decoded(JobSpec, "spec", wish.job_id),
            pipeline=decoded(Pipeline, "pipeline", wish.pipeline_id),
            project=decoded(Project, "project", wish.project_id),
            variables=[
                *(each for group in sorted(set(wish.group_ids)) for each in variables.get((0, group), ())),
                *variables.get((wish.project_id, 0), ()),
            ],
            settings={name: settings[name] for name in wish.settings if name in settings},
        )
        for wish in wishes
    }


class Write(NamedTuple):
    """A job as it shall be stored, if its row is still `before`."""

    before: bytes
    job: Job
    runner: bytes | None = None
    """To whom it is leased."""
    wish: Wish | None = None
    """Of a job that is leased."""
    is_beside: bool = False
    """It ends while others of its pipeline are under way."""

    def values(self) -> tuple[Any, ...]:
        """What `STORE_JOBS` is told."""
        return (
            *update_values(self.before, self.job),
            self.runner,
            self.job.pipeline_id if self.is_beside else None,
        )


def update_values(before: bytes, job: Job) -> tuple[Any, ...]:
    request_id = job.request_id and plain(job.request_id)
    return (job.id, before, job.state.value, int(job.retried), job.runner_id, request_id, encode(job))


async def update_jobs(db: Connection, jobs: Sequence[Job], bodies: Mapping[JobId, bytes]) -> None:
    """Store jobs that are still what was read; LostRaceError when one is not."""
    if len(jobs) == 1:
        count = changed(await db.execute(UPDATE_JOB, *update_values(bodies[jobs[0].id], jobs[0])))
    elif jobs:
        columns = zip(*(update_values(bodies[job.id], job) for job in jobs), strict=True)
        sql = (
            "UPDATE jobs SET state = new.state, retried = new.retried, runner_id = new.runner_id,"
            " request_id = new.request_id, body = new.body FROM unnest($1::bigint[], $2::bytea[], $3::text[],"
            " $4::integer[], $5::bigint[], $6::text[], $7::bytea[])"
            " AS new (id, before, state, retried, runner_id, request_id, body)"
            " WHERE jobs.id = new.id AND jobs.body = new.before"
        )
        count = changed(await db.execute(sql, *map(list, columns)))
    else:
        return
    if count != len(jobs):
        raise LostRaceError


async def add_pipeline(db: Connection, pipeline: Pipeline) -> None:
    sql = (
        "INSERT INTO pipelines (id, project_id, iid, ref, sha, status, body, upstream_job_id, is_child, source, name,"
        " tag, yaml_errors, schedule_id, user_id, created_at, updated_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)"
    )
    await db.execute(
        sql,
        pipeline.id,
        pipeline.project_id,
        pipeline.iid,
        plain(pipeline.ref),
        plain(pipeline.sha),
        pipeline.status,
        encode(pipeline),
        pipeline.upstream_job_id,
        int(pipeline.is_child),
        plain(pipeline.source),
        plain(pipeline.name),
        int(pipeline.tag),
        None if pipeline.yaml_errors is None else plain(pipeline.yaml_errors),
        pipeline.schedule_id,
        pipeline.user_id,
        pipeline.created_at,
        pipeline.updated_at,
    )


UPDATE_PIPELINES = (
    "UPDATE pipelines SET status = new.status, updated_at = new.updated_at, body = new.body"
    " FROM unnest($1::bigint[], $2::text[], $3::double precision[], $4::bytea[])"
    " AS new (id, status, updated_at, body) WHERE pipelines.id = new.id"
)


async def update_pipelines(db: Connection, pipelines: Sequence[Pipeline]) -> None:
    """Store pipelines whose rows are locked."""
    if not pipelines:
        return
    columns = zip(*((one.id, one.status, one.updated_at, encode(one)) for one in pipelines), strict=True)
    await db.execute(UPDATE_PIPELINES, *map(list, columns))


def conditions(wanted: PipelineFilter) -> dict[str, Any]:
    """What SQL asks of a pipeline's row, with the values."""
    compared = {
        "ref = ?": plain(wanted.ref) or None,
        "sha = ?": plain(wanted.sha) or None,
        "source = ?": plain(wanted.source) or None,
        "name = ?": plain(wanted.name) or None,
        "tag = ?": None if wanted.tag is None else int(wanted.tag),
        "(yaml_errors IS NOT NULL) = ?": wanted.has_mistakes,
        "schedule_id = ?": wanted.schedule_id,
        "user_id = ?": wanted.user_id,
        "updated_at > ?": wanted.updated_after,
        "updated_at < ?": wanted.updated_before,
        "created_at > ?": wanted.created_after,
        "created_at < ?": wanted.created_before,
        "status = ?": wanted.status,
        "status = ANY(?::text[])": None if wanted.statuses is None or wanted.status else list(wanted.statuses),
    }
    asked: dict[str, Any] = {sql: value for sql, value in compared.items() if value is not None}
    return asked if wanted.source else {**asked, "is_child = 0": None}


def schedule_values(schedule: Schedule) -> tuple[Any, ...]:
    """What `PUT_SCHEDULE` is told."""
    due = schedule.next_run_at if schedule.active else None
    return schedule.id, schedule.project_id, due, encode(schedule)


async def read_schedule(db: Connection, schedule_id: int) -> Schedule | None:
    """A schedule, locked."""
    body = await db.fetchval("SELECT body FROM schedules WHERE id = $1 FOR UPDATE", schedule_id)
    return decode(Schedule, body) if body else None


async def check_job(db: Connection, job_id: JobId) -> bytes:
    """The body of a job, which is locked against other changes; NotFoundError when there is none."""
    body = await db.fetchval("SELECT body FROM jobs WHERE id = $1 FOR UPDATE", job_id)
    if body is None:
        raise NotFoundError(f"there is no job {job_id}")
    found: bytes = body
    return found


def artifact_values(artifact: Artifact) -> tuple[Any, ...]:
    """What `PUT_ARTIFACT` is told."""
    return artifact.job_id, artifact.type, artifact.look_at, encode(artifact)


async def remove_pipeline(db: Connection, pipeline_id: PipelineId) -> bool:
    """With everything that belongs to it; whether it was there."""
    for table in ("results", "artifacts"):
        found = "SELECT id FROM jobs WHERE pipeline_id = $1"
        await db.execute(f"DELETE FROM {table} WHERE job_id IN ({found})", pipeline_id)
    gone = await db.fetch("DELETE FROM jobs WHERE pipeline_id = $1 RETURNING spec_id", pipeline_id)
    await db.execute("DELETE FROM specs WHERE id = ANY($1::bigint[])", list({row[0] for row in gone}))
    return await db.fetchval("DELETE FROM pipelines WHERE id = $1 RETURNING true", pipeline_id) is True


def lock_project(project_id: ProjectId) -> str:
    """Only one pipeline at a time is added to a project; what refers to the project is not held up."""
    return f"SELECT FROM projects WHERE id = {int(project_id)} FOR NO KEY UPDATE"
