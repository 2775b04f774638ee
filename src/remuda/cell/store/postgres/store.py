"""The store in a PostgreSQL database: for a cell that has outgrown one file or one process.

It decides nothing; `core.lifecycle` does, inside transactions. Several processes use one database at the same time.
What must not happen twice or at the same time is kept apart by the rows themselves: a pipeline's row is locked while
something is decided about its family, a project's row while it gets a pipeline, all resource groups of a project while
one is given away. A job is changed only if it is still, byte for byte, what the decision was made on; otherwise the
decision is made anew. So a lease costs one message and holds no lock while anybody thinks.

A decision about a family may have seen another job of it a moment before that one was leased or spoke: the same as if
the runner had come a moment later.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from msgspec.structs import replace as replaced

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.pipelines.schedules import with_pipeline
from remuda.cell.errors import NotFoundError
from remuda.cell.store.paging import read_in_pieces
from remuda.cell.store.ports import Applied, Belongings, Changes
from remuda.cell.store.postgres import rows
from remuda.cell.store.postgres.access import AWAY, FAILURES, LostRaceError, draw, plain, store_error
from remuda.cell.store.postgres.families import FAMILIES, Made, Wanted, change_families, lock
from remuda.cell.store.postgres.notifications import Hints
from remuda.cell.store.postgres.pool import Connection, Pool
from remuda.cell.store.postgres.settings import RUNNERS, PostgresKeeping
from remuda.cell.store.row_bodies import decode, decode_job, encode
from remuda.cell.store.sqlite.rows import IS_OPEN, order
from remuda.cell.store.write_batching import Together
from remuda.cell.values import (
    ALL_PIPELINES,
    Family,
    Job,
    NewJob,
    Page,
    Pipeline,
    PipelineFilter,
    Runner,
    Schedule,
)
from remuda.model.job import FINAL, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import OPEN
from remuda.pipeline import JobSpec

_DOWNSTREAM = "SELECT body FROM pipelines WHERE upstream_job_id = $1"
_JOBS = "SELECT id, body FROM jobs WHERE id = ANY($1::bigint[])"
_SOME_JOBS = "SELECT body FROM jobs WHERE id = ANY($1::bigint[]) ORDER BY id"
_PIPELINES = "SELECT id, body FROM pipelines WHERE id = ANY($1::bigint[])"
_SPECS = "SELECT jobs.id, specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ANY($1::bigint[])"
_LEASED = (
    "SELECT runner_id, request_id, body FROM jobs JOIN unnest($1::bigint[], $2::text[]) AS asked (runner, request)"
    " ON runner_id = asked.runner AND request_id = asked.request WHERE state = 'leased'"
)
_OFTEN: Mapping[str, int] = {
    rows.STORE_JOBS: 9,
    rows.LEASE_JOBS: 14,
    rows.BELONGINGS: 5,
    rows.UPDATE_PIPELINES: 4,
    FAMILIES: 1,
    RUNNERS: 1,
    _LEASED: 2,
    _JOBS: 1,
    _SOME_JOBS: 1,
    _PIPELINES: 1,
}
"""What calls of runners need, with the number of lists that each is told."""
_HOPEFUL_TRIES = 3
"""How often a job is changed in the hope that nobody else does; then it is locked."""
_FAMILY_LANES = 2


class PostgresStore(PostgresKeeping):
    """A store in a database server."""

    @property
    def jobs(self) -> Self:
        return self

    @property
    def pipelines(self) -> Self:
        return self

    @property
    def projects(self) -> Self:
        return self

    @property
    def people(self) -> Self:
        return self

    @property
    def runners(self) -> Self:
        return self

    @property
    def schedules(self) -> Self:
        return self

    @property
    def settings(self) -> Self:
        return self

    def __init__(self, pool: Pool, keyed: Pool, hints: Hints) -> None:
        super().__init__(pool, keyed, hints)
        self._calls: set[tuple[RunnerId, str] | None] = set()
        """Calls of runners for which a hand-out is being stored."""
        # One at a time: what gathers meanwhile is stored with the next, and a statement costs more than what it stores.
        self._job_lane = Together(self._store_jobs, lanes=1)
        # Decisions about one pipeline wait for each other anyway.
        self._family_lanes = [Together(self._change_families, lanes=1) for _ in range(_FAMILY_LANES)]

    async def warm_up(self) -> None:
        """The server plans a statement when it is first used on a connection, which takes longer than many uses."""

        async def plan(db: Connection) -> None:
            for sql, lists in _OFTEN.items():
                await db.fetch(sql, *([] for _ in range(lists)))
            await db.execute(rows.UPDATE_JOB, *(None,) * 7)

        with suppress(*FAILURES, ExceptionGroup):  # then it is done when it is needed
            await self._keyed_pool.warm_up(plan)

    def watch_changes(self) -> AsyncGenerator[Collection[JobId], None]:
        return self._hints.heard()

    # pipelines

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
        owner = pipeline.project_id

        async def add(db: Connection) -> Family:
            upstream = pipeline.upstream_job_id
            if upstream is not None and (there := await db.fetchval(_DOWNSTREAM, upstream)):
                return (await rows.read_family(db, decode(Pipeline, there).id, jobs_too=False)).family
            found = await db.fetchrow(
                "SELECT coalesce(max(iid), 0) + 1, nextval('pipelines_id'), (SELECT 1 FROM projects WHERE id = $1)"
                " FROM pipelines WHERE project_id = $1",
                owner,
            )
            if found is None or found[2] is None:
                raise NotFoundError(f"there is no project {owner}")
            added = replaced(pipeline, iid=found[0], id=PipelineId(found[1]))
            ids = await draw(db, "jobs", len(jobs)) if jobs else ()
            created = [lifecycle.new_job(new, added, JobId(id_), now) for new, id_ in zip(jobs, ids, strict=True)]
            taken = await rows.taken_groups(db, added, created)
            family = _begun(Family(pipeline=added, jobs=tuple(created), taken=taken), now)
            await rows.add_pipeline(db, family.pipeline)
            if jobs:
                specs = [(id_, encode(new.spec)) for new, id_ in zip(jobs, ids, strict=True)]
                await db.executemany("INSERT INTO specs (id, body) VALUES ($1, $2)", specs)
                await rows.add_jobs(db, [(job, job.id) for job in family.jobs])
            if sees:
                await db.execute(rows.SEE_REF, owner, *sees)
            if schedule and (kept := await rows.read_schedule(db, schedule.id)):
                ran = with_pipeline(kept, schedule, added.id, due_at=due_at)
                await db.execute(rows.PUT_SCHEDULE, *rows.schedule_values(ran))
            return family

        family = await self._change(add, rows.lock_project(owner))
        self._hints.tell(job for job in family.jobs if job.state is JobState.PENDING)
        return family

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return await self._keyed(Pipeline, _PIPELINES, pipeline_id)

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, wanted: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        where: dict[str, Any] = {"project_id = ?": project_id, **rows.conditions(wanted)}
        return await self._page(Pipeline, "pipelines", where, page, order(wanted))

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        sql = "SELECT body FROM pipelines WHERE project_id = $1 AND ref = $2 AND status = ANY($3::text[]) ORDER BY id"
        return await self._all(Pipeline, sql, project_id, plain(ref), sorted(OPEN))

    async def find_downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        return await self._one(Pipeline, _DOWNSTREAM, upstream_job_id)

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        found = [row[0] for row in await self._rows(rows.FAMILY, pipeline_id)]
        if not found:
            return None
        pipeline, jobs = decode(Pipeline, found[0]), tuple(map(decode_job, found[1:]))
        taken: frozenset[str] = frozenset()
        if groups := rows.groups(jobs):
            taken = rows.found_groups(groups, await self._rows(rows.TAKEN, *rows.taken_values(pipeline, groups)))
        return Family(pipeline=pipeline, jobs=jobs, taken=taken)

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        async def remove(db: Connection) -> bool:
            return await rows.remove_pipeline(db, pipeline_id)

        return await self._change(remove, f"SELECT FROM pipelines WHERE id = {int(pipeline_id)} FOR UPDATE")

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        made = await self._family_lanes[pipeline_id % _FAMILY_LANES].make(Wanted(pipeline_id, decide))
        if made is None:
            made = await self._change_alone(pipeline_id, decide)
        elif made.error is not None:
            raise made.error
        applied, before = made.applied, {job.id: job.state for job in made.before.jobs} if made.before else {}
        self._hints.tell(job for job in applied.jobs if applied.pipeline or _is_news(before.get(job.id), job.state))
        return applied

    async def _change_families(self, wanted: Sequence[Wanted]) -> Sequence[Made | None]:
        try:
            async with self._begun(lock(one.pipeline_id for one in wanted), keyed=True) as db:
                return await change_families(db, wanted)
        except (LostRaceError, *FAILURES) as error:
            if isinstance(error, AWAY):
                raise store_error(error) from error
            return [None] * len(wanted)

    async def _change_alone(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Made:
        tries = 0

        async def change(db: Connection) -> Made:
            nonlocal tries
            tries += 1
            read = await rows.read_family(db, pipeline_id, jobs_too=tries > _HOPEFUL_TRIES)
            return Made(read.family, await _apply(db, decide(read.family), read.bodies))

        return await self._change(change, lock([pipeline_id]))

    # jobs

    async def load_job(self, job_id: JobId) -> Job | None:
        return await self._keyed(Job, _JOBS, job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        return [decode(Job, row[0]) for row in await self._rows(_SOME_JOBS, list(job_ids), keyed=True)]

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        return await self._keyed(JobSpec, _SPECS, job_id)

    async def load_belongings(self, job: Job, settings: Collection[str] = ()) -> Belongings:
        wish = rows.Wish.of(job, settings)
        found: Belongings = await self._asked_with_others("belongings", self._read_belongings, wish)
        return found

    async def _read_belongings(self, wishes: Sequence[rows.Wish]) -> Mapping[rows.Wish, Belongings]:
        return rows.fulfilled(wishes, await self._rows(rows.BELONGINGS, *rows.wish_values(wishes), keyed=True))

    async def list_jobs(
        self,
        page: Page,
        *,
        project_id: ProjectId | None = None,
        pipeline_id: PipelineId | None = None,
        states: Sequence[str] = (),
        with_retried: bool = False,
        is_trigger: bool | None = None,
        runner_id: RunnerId | None = None,
        project_ids: Collection[ProjectId] | None = None,
    ) -> tuple[Sequence[Job], int]:
        where: dict[str, Any] = {}
        if project_id is not None:
            where["project_id = ?"] = project_id
        if pipeline_id is not None:
            where["pipeline_id = ?"] = pipeline_id
        if runner_id is not None:
            states = states or list(JobState)  # its index has them by state
        is_merged = pipeline_id is None and project_ids is None
        if states and not is_merged:
            where["state = ANY(?::text[])"] = list(states)
        if not with_retried:
            where["retried = 0"] = None
        if is_trigger is not None:
            where["is_trigger = ?"] = int(is_trigger)
        if runner_id is not None:
            where["runner_id = ?"] = runner_id
        if project_ids is not None:
            where["project_id = ANY(?::bigint[])"] = list(project_ids)
        return await self._page(Job, "jobs", where, page, states=states if is_merged else ())

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        hoped = decide(known) if known else None
        if known and hoped and await self._job_lane.make(rows.Write(encode(known), hoped)):
            return self._told(known, hoped)
        for _ in range(_HOPEFUL_TRIES):
            body = await self._body(_JOBS, job_id)
            if body is None:
                return None
            before = decode(Job, body)
            after = decide(before)
            if after is None or await self._job_lane.make(rows.Write(body, after)):
                return self._told(before, after)

        async def change(db: Connection) -> tuple[Job, Job | None]:
            body = await rows.check_job(db, job_id)
            before = decode(Job, body)
            after = decide(before)
            if after is not None:
                await rows.update_jobs(db, [after], {job_id: body})
            return before, after

        return self._told(*await self._change(change))

    async def end_beside(self, known: Job, ended: Job) -> bool:
        is_stored = await self._job_lane.make(rows.Write(encode(known), ended, is_beside=True))
        return self._told(known, ended if is_stored else None) is not None

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> Belongings | None:
        call = (runner.id, leased.request_id) if leased.request_id else None
        if call and call in self._calls:
            return None  # of two hand-outs for the same call neither would see the other
        self._calls.add(call)
        try:
            wish = rows.Wish.of(leased, settings)
            made = await self._job_lane.make(rows.Write(encode(known), leased, encode(runner), wish))
        finally:
            self._calls.discard(call)
        self._told(known, leased if made else None)
        return made if isinstance(made, Belongings) else None

    async def _store_jobs(self, writes: Sequence[rows.Write]) -> Sequence[Belongings | bool | None]:
        """Store jobs: whether each is; of one that is leased its belongings. What somebody else is changing is not."""
        # Of two changes of a job neither has seen the other.
        first = {write.job.id: write for write in reversed(writes)}
        chosen = list(first.values())
        columns = map(list, zip(*(write.values() for write in chosen), strict=True))
        wishes = [write.wish for write in chosen if write.wish]
        try:
            async with self._connection(keyed=True) as db:
                if wishes:
                    found = await db.fetch(rows.LEASE_JOBS, *columns, *rows.wish_values(wishes))
                else:
                    found = await db.fetch(rows.STORE_JOBS, *columns)
        except FAILURES as error:
            if isinstance(error, AWAY):
                raise store_error(error) from error
            return [None] * len(writes)
        stored = {row[1] for row in found if row[0] == "stored"}
        belongings = rows.fulfilled(wishes, found) if wishes else {}

        def made(write: rows.Write) -> Belongings | bool:
            if write.job.id not in stored or first[write.job.id] is not write:
                return False
            return belongings[write.wish] if write.wish else True

        return list(map(made, writes))

    def _told(self, before: Job, after: Job | None) -> Job | None:
        if after is not None and (_is_news(before.state, after.state) or before.priority != after.priority):
            self._hints.tell([after])
        return after

    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        sql = (
            "SELECT body FROM jobs WHERE state = 'success' AND project_id = $1 AND ref = $2 AND name = $3"
            " AND ($4::int IS NULL OR $4 = (SELECT tag FROM pipelines WHERE id = jobs.pipeline_id))"
            " ORDER BY id DESC LIMIT 1"
        )
        return await self._one(Job, sql, project_id, plain(ref), plain(name), None if tag is None else int(tag))

    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        sql = "SELECT id FROM jobs WHERE state = ANY($1::text[]) ORDER BY id"
        job_ids = [JobId(row[0]) for row in await self._rows(sql, [state.value for state in states])]
        return await read_in_pieces(job_ids, self.load_jobs, states)

    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        sql = (
            "SELECT body FROM jobs WHERE project_id = $1 AND resource_group = $2 AND state = ANY($3::text[])"
            " ORDER BY id + 0 LIMIT 1"  # of the few that are found, not in the order of all that a project has
        )
        return await self._one(Job, sql, project_id, plain(group), [state.value for state in states])

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        key = (runner_id, plain(request_id))
        body = await self._asked_with_others("leased by request", self._read_leased, key)
        return decode(Job, body) if body else None

    async def _read_leased(self, keys: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], bytes]:
        runner_ids, request_ids = map(list, zip(*keys, strict=True))
        return {(row[0], row[1]): row[2] for row in await self._rows(_LEASED, runner_ids, request_ids, keyed=True)}

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        of = f"SELECT id FROM pipelines WHERE {IS_OPEN}"
        sql = (
            f"SELECT jobs.id FROM ({of} AND status = ANY($1::text[]) UNION ALL"
            f" {of} AND status = 'manual' AND updated_at > $2) AS moving"
            " JOIN jobs ON jobs.pipeline_id = moving.id WHERE jobs.state = ANY($3::text[]) ORDER BY 1"
        )
        found = await self._rows(sql, sorted(OPEN - {"manual"}), held_since, [state.value for state in states])
        return await read_in_pieces([JobId(row[0]) for row in found], self.load_jobs, states)

    async def count_jobs(self) -> Mapping[str, int]:
        sql = "SELECT state, count(*) FROM jobs WHERE state = ANY($1::text[]) GROUP BY state"
        unfinished = [state.value for state in JobState if state not in FINAL]
        return dict(tuple(row) for row in await self._rows(sql, unfinished))

    async def count_pipelines(self) -> Mapping[str, int]:
        sql = f"SELECT status, count(*) FROM pipelines WHERE {IS_OPEN} GROUP BY status"
        return dict(tuple(row) for row in await self._rows(sql))


def _is_news(before: JobState | None, after: JobState) -> bool:
    """Whether others must know. That a runner has acknowledged its job is nothing to them: they knew that it has it."""
    return before is not after and (before, after) != (JobState.LEASED, JobState.RUNNING)


def _begun(family: Family, now: float) -> Family:
    """A new family whose first jobs wait."""
    changes = lifecycle.begin(family, now)
    begun = {job.id: job for job in changes.jobs}
    jobs = tuple(begun.get(job.id, job) for job in family.jobs)
    return replaced(family, pipeline=changes.pipeline or family.pipeline, jobs=jobs)


async def _apply(db: Connection, changes: Changes, bodies: Mapping[JobId, bytes]) -> Applied:
    applied = list(changes.jobs)
    await rows.update_jobs(db, changes.jobs, bodies)
    if changes.retries:
        sql = "SELECT id, spec_id FROM jobs WHERE id = ANY($1::bigint[])"
        specs = dict(tuple(row) for row in await db.fetch(sql, [retry.of for retry in changes.retries]))
        ids = await draw(db, "jobs", len(changes.retries))
        new = [replaced(retry.job, id=JobId(id_)) for retry, id_ in zip(changes.retries, ids, strict=True)]
        await rows.add_jobs(db, [(job, specs[retry.of]) for job, retry in zip(new, changes.retries, strict=True)])
        applied += new
    if changes.pipeline:
        await rows.update_pipelines(db, [changes.pipeline])
    return Applied(jobs=tuple(applied), pipeline=changes.pipeline)
