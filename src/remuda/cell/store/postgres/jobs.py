"""The PostgreSQL implementation of `JobStore`, for several processes at the same time. A job is changed only if its row
is still, byte for byte, what the change was computed from, or is locked by the transaction. So giving a job to a runner
needs one message to the server, and no lock is held between reading and writing."""

from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.cell.store.paging import read_in_pieces
from remuda.cell.store.ports.tables import JOBS
from remuda.cell.store.postgres import job_statements
from remuda.cell.store.postgres.database import (
    AWAY,
    FAILURES,
    PostgresDatabase,
    PostgresTransaction,
    select_by_key,
    shorten,
    store_error,
)
from remuda.cell.store.postgres.payload_parts import PAYLOAD_PARTS, PartsQuery, query_values, read_payload_parts
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sql.filters import IS_OPEN
from remuda.cell.store.sql.lists import SqlJobs
from remuda.cell.store.write_batching import WriteBatcher
from remuda.cell.values import Job, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.model.job import FINAL, JobId, JobState, RunnerId
from remuda.model.progress import OPEN
from remuda.pipeline import JobSpec

_JOBS = select_by_key("jobs", "id", int)
_SOME_JOBS = "SELECT body FROM jobs WHERE id = ANY($1::bigint[]) ORDER BY id"
_SPECS = "SELECT jobs.id, specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ANY($1::bigint[])"
_LEASED = (
    "SELECT runner_id, request_id, body FROM jobs JOIN unnest($1::bigint[], $2::text[]) AS asked (runner, request)"
    " ON runner_id = asked.runner AND request_id = asked.request WHERE state = 'leased'"
)
_OPTIMISTIC_TRIES = 3
"""How often a job is changed without a lock before its row is locked."""


class PostgresJobs(SqlJobs):
    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._database = database
        self._requests: set[tuple[RunnerId, str] | None] = set()
        """Requests of runners for which a hand-out is being stored."""
        # One batch at a time: changes that arrive meanwhile join the next one, and a statement costs more than a row.
        self._writes = WriteBatcher(self._store_jobs, lanes=1)
        database.frequent |= {
            job_statements.STORE_JOBS: 9,
            job_statements.LEASE_JOBS: 14,
            PAYLOAD_PARTS: 5,
            select_by_key("runners", "token_hash", str): 1,
            _LEASED: 2,
            _JOBS: 1,
            _SOME_JOBS: 1,
        }

    async def load_job(self, job_id: JobId) -> Job | None:
        return await self._database.load(Job, _JOBS, job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        return [decode(Job, row[0]) for row in await self._database.fetch(_SOME_JOBS, list(job_ids), keyed=True)]

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        return await self._database.load(JobSpec, _SPECS, job_id)

    async def load_payload_parts(self, job: Job, settings: Collection[str] = ()) -> PayloadParts:
        query = PartsQuery.of(job, settings)
        parts: PayloadParts = await self._database.fetch_together("payload parts", self._read_payload_parts, query)
        return parts

    async def _read_payload_parts(self, queries: Sequence[PartsQuery]) -> Mapping[PartsQuery, PayloadParts]:
        fetched = await self._database.fetch(PAYLOAD_PARTS, *query_values(queries), keyed=True)
        return read_payload_parts(queries, fetched)

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        expected = decide(known) if known else None
        if known and expected and await self._writes.submit(job_statements.Write(encode(known), expected)):
            return self._tell_others(known, expected)
        for _ in range(_OPTIMISTIC_TRIES):
            body = await self._database.load_body(_JOBS, job_id)
            if body is None:
                return None
            before = decode(Job, body)
            after = decide(before)
            if after is None or await self._writes.submit(job_statements.Write(body, after)):
                return self._tell_others(before, after)

        async def change(transaction: PostgresTransaction) -> tuple[Job | None, Job | None]:
            before = await transaction.find_locked(JOBS, id=job_id)
            after = decide(before) if before else None
            if after is not None:
                await transaction.update_job(after)
            return before, after

        before_change, after_change = await self._database.change(change)
        return self._tell_others(before_change, after_change) if before_change else None

    async def end_beside(self, known: Job, ended: Job) -> bool:
        is_stored = await self._writes.submit(job_statements.Write(encode(known), ended, is_beside=True))
        return self._tell_others(known, ended if is_stored else None) is not None

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> PayloadParts | None:
        request = (runner.id, leased.request_id) if leased.request_id else None
        if request and request in self._requests:
            return None  # two hand-outs for the same request would not see each other
        self._requests.add(request)
        try:
            query = PartsQuery.of(leased, settings)
            result = await self._writes.submit(job_statements.Write(encode(known), leased, encode(runner), query))
        finally:
            self._requests.discard(request)
        self._tell_others(known, leased if result else None)
        return result if isinstance(result, PayloadParts) else None

    async def _store_jobs(self, writes: Sequence[job_statements.Write]) -> Sequence[PayloadParts | bool | None]:
        """Store changes of jobs with one statement. Returns for each whether it was stored; for a job given to a
        runner, the values for its payload. Of two changes of one job only the first is stored. None for all: the
        statement failed, and each caller must store its change alone. Raises StoreError if the connection was lost."""
        first = {write.job.id: write for write in reversed(writes)}
        chosen = list(first.values())
        columns = map(list, zip(*(write.values() for write in chosen), strict=True))
        queries = [write.query for write in chosen if write.query]
        try:
            async with self._database.borrow(keyed=True) as db:
                if queries:
                    fetched = await db.fetch(job_statements.LEASE_JOBS, *columns, *query_values(queries))
                else:
                    fetched = await db.fetch(job_statements.STORE_JOBS, *columns)
        except FAILURES as error:
            if isinstance(error, AWAY):
                raise store_error(error) from error
            return [None] * len(writes)
        stored = {row[1] for row in fetched if row[0] == "stored"}
        parts = read_payload_parts(queries, fetched) if queries else {}

        def result(write: job_statements.Write) -> PayloadParts | bool:
            if write.job.id not in stored or first[write.job.id] is not write:
                return False
            return parts[write.query] if write.query else True

        return list(map(result, writes))

    def _tell_others(self, before: Job, after: Job | None) -> Job | None:
        if after is not None and (
            job_statements.is_news(before.state, after.state) or before.priority != after.priority
        ):
            self._database.notifications.send([after])
        return after

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        key = (runner_id, shorten(request_id))
        body = await self._database.fetch_together("leased by request", self._read_leased, key)
        return decode(Job, body) if body else None

    async def _read_leased(self, keys: Sequence[tuple[int, str]]) -> Mapping[tuple[int, str], bytes]:
        runner_ids, request_ids = map(list, zip(*keys, strict=True))
        return {
            (row[0], row[1]): row[2] for row in await self._database.fetch(_LEASED, runner_ids, request_ids, keyed=True)
        }

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        open_pipelines = f"SELECT id FROM pipelines WHERE {IS_OPEN}"
        sql = (
            f"SELECT jobs.id FROM ({open_pipelines} AND status = ANY($1::text[]) UNION ALL"
            f" {open_pipelines} AND status = 'manual' AND updated_at > $2) AS moving"
            " JOIN jobs ON jobs.pipeline_id = moving.id WHERE jobs.state = ANY($3::text[]) ORDER BY 1"
        )
        fetched = await self._database.fetch(
            sql, sorted(OPEN - {"manual"}), held_since, [state.value for state in states]
        )
        return await read_in_pieces([JobId(row[0]) for row in fetched], self.load_jobs, states)

    async def count_jobs(self) -> Mapping[str, int]:
        sql = "SELECT state, count(*) FROM jobs WHERE state = ANY($1::text[]) GROUP BY state"
        unfinished = [state.value for state in JobState if state not in FINAL]
        return dict(tuple(row) for row in await self._database.fetch(sql, unfinished))
