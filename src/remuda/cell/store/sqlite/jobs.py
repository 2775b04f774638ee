"""The SQLite implementation of the store's interface `JobStore`. Changes that several requests make at the same time
are stored by one statement: Python may switch threads at every call of SQLite, so the cost depends on the number of
calls, not on the number of rows. Invariant: a job is changed only if its row is still, byte for byte, what the change
was computed from, or inside a transaction that has read it."""

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from remuda.cell.store.paging import read_in_pieces
from remuda.cell.store.row_bodies import decode, decode_cached, encode
from remuda.cell.store.sql.filters import IS_OPEN, quote_states
from remuda.cell.store.sql.lists import SqlJobs
from remuda.cell.store.sqlite.database import SqliteDatabase, json_list, update_job
from remuda.cell.store.write_batching import WriteBatcher
from remuda.cell.values import UNDER_WAY, Job, Pipeline, Project, ProjectVariable, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.model.job import FINAL, JobId, JobState, RunnerId
from remuda.model.progress import OPEN
from remuda.pipeline import JobSpec

_PAYLOAD_PARTS = (
    # One line for each row. No body contains a line break, because it is JSON.
    "SELECT CAST(group_concat(line, char(10)) AS BLOB) FROM ("
    + " UNION ALL ".join(
        (
            "SELECT 'variable ' || body AS line FROM variables WHERE project_id = ? AND group_id = 0",
            "SELECT 'variable ' || body FROM variables"
            " WHERE project_id = 0 AND group_id IN (SELECT value FROM json_each(?))",
            "SELECT 'spec ' || specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ?",
            "SELECT 'pipeline ' || body FROM pipelines WHERE id = ?",
            "SELECT 'project ' || body FROM projects WHERE id = ?",
            "SELECT 'setting ' || json_array(name, value) FROM settings WHERE name IN (SELECT value FROM json_each(?))",
        )
    )
    + ")"
)
"""Selects all parts of a payload in one statement."""
_setting = msgspec.json.Decoder(tuple[str, str]).decode


class _Write(NamedTuple):
    """A changed job, to be stored only if the column `body` of its row (the encoded job) still equals `before`."""

    before: bytes
    job: Job
    runner: bytes | None = None
    """The encoded runner that the job is leased to. It must be unchanged, and its request must have no job yet."""
    is_beside: bool = False
    """Store it only while a job of its pipeline with a higher id is pending, leased or running."""

    def values(self) -> tuple[Any, ...]:
        job = self.job
        to = (job.state, job.retried, job.runner_id, job.request_id, encode(job))
        return job.id, *to, self.before, self.runner, self.is_beside


@lru_cache
def _store_jobs(many: int) -> str:
    """Return the SQL that stores `many` changed jobs; all conditions see the rows as they were before the statement."""
    return (
        "UPDATE jobs SET state = new.column2, retried = new.column3, runner_id = new.column4,"
        " request_id = new.column5, body = new.column6"
        f" FROM (VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?, ?)'] * many)}) AS new"
        " WHERE jobs.id = new.column1 AND jobs.body = new.column7"
        " AND (new.column8 IS NULL OR EXISTS"
        " (SELECT 1 FROM runners WHERE runners.id = new.column4 AND runners.body = new.column8)"
        " AND NOT EXISTS (SELECT 1 FROM jobs AS had INDEXED BY jobs_by_request"
        " WHERE had.state = 'leased' AND had.runner_id = new.column4 AND had.request_id = new.column5))"
        " AND (NOT new.column9 OR EXISTS (SELECT 1 FROM jobs AS later WHERE later.pipeline_id = jobs.pipeline_id"
        # From the end, because the first jobs of a large pipeline end first.
        f" AND later.id > jobs.id AND later.retried = 0 AND later.state IN ({quote_states(UNDER_WAY)})"
        " ORDER BY later.id DESC))"
    )


class SqliteJobs(SqlJobs):
    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database)
        self._database = database
        self._calls: set[tuple[RunnerId, str] | None] = set()
        """Requests of runners for which a hand-out is being stored."""
        self._writes = WriteBatcher(self._store_jobs, lanes=1)

    async def load_job(self, job_id: JobId) -> Job | None:
        return self._database.load(Job, "SELECT body FROM jobs WHERE id = ?", job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        sql = "SELECT body FROM jobs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return self._database.load_all(Job, sql, json_list(job_ids))

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        sql = "SELECT specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ?"
        return self._database.load(JobSpec, sql, job_id)

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        sql = "SELECT body FROM jobs WHERE state = 'leased' AND runner_id = ? AND request_id = ?"
        return self._database.load(Job, sql, runner_id, request_id)

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        open_pipelines = f"SELECT id FROM pipelines WHERE {IS_OPEN}"
        sql = (
            "SELECT jobs.id FROM"
            f" ({open_pipelines} AND status IN (SELECT value FROM json_each(?)) UNION ALL"
            f" {open_pipelines} AND status = 'manual' AND updated_at > ?) AS moving"
            " CROSS JOIN jobs ON jobs.pipeline_id = moving.id"
            " WHERE +jobs.state IN (SELECT value FROM json_each(?)) ORDER BY 1"
        )
        moving, in_states = json_list(OPEN - {"manual"}), json_list(states)
        job_ids = [JobId(row[0]) for row in await self._database.read_in_thread(sql, moving, held_since, in_states)]
        return await read_in_pieces(job_ids, self.load_jobs, states)

    async def count_jobs(self) -> Mapping[str, int]:
        sql = "SELECT state, count(*) FROM jobs WHERE state IN (SELECT value FROM json_each(?)) GROUP BY state"
        return dict(await self._database.read_in_thread(sql, json_list(frozenset(JobState) - FINAL)))

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        expected = decide(known) if known else None
        if known and expected and await self._writes.submit(_Write(encode(known), expected)):
            return expected

        def change(db: sqlite3.Connection) -> Job | None:
            row = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            changed = decide(decode(Job, row[0])) if row else None
            if changed is not None:
                update_job(db, changed)
            return changed

        return await self._database.write(change)

    async def end_beside(self, known: Job, ended: Job) -> bool:
        return bool(await self._writes.submit(_Write(encode(known), ended, is_beside=True)))

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> PayloadParts | None:
        call = (runner.id, leased.request_id) if leased.request_id else None
        if call and call in self._calls:
            return None  # two hand-outs for the same request would not see each other
        self._calls.add(call)
        try:
            parts = await self.load_payload_parts(leased, settings)
            return parts if await self._writes.submit(_Write(encode(known), leased, encode(runner))) else None
        finally:
            self._calls.discard(call)

    async def _store_jobs(self, writes: Sequence[_Write]) -> Sequence[bool]:
        """Store changed jobs and return for each whether it was stored. Of two changes of one job only the first is
        stored, because the second was computed from the job without the first."""
        first = {write.job.id: write for write in reversed(writes)}
        sql = _store_jobs(len(first))
        values = [value for write in first.values() for value in write.values()]

        def store(db: sqlite3.Connection) -> Collection[JobId]:
            stored = db.execute(sql, values).rowcount
            if stored in (0, len(first)):
                return first.keys() if stored else ()
            ids = json_list(first)
            bodies = dict(db.execute("SELECT id, body FROM jobs WHERE id IN (SELECT value FROM json_each(?))", (ids,)))
            return {job_id for job_id, write in first.items() if bodies.get(job_id) == encode(write.job)}

        stored = await self._database.write(store, is_statement=True)
        return [write.job.id in stored and first[write.job.id] is write for write in writes]

    async def load_payload_parts(self, job: Job, settings: Collection[str] = ()) -> PayloadParts:
        groups, names = json_list([0, *job.group_ids]), json_list(settings)
        keys = (job.project_id, groups, job.id, job.pipeline_id, job.project_id, names)
        bodies: dict[bytes, list[bytes]] = {}
        lines: bytes = self._database.read(_PAYLOAD_PARTS, *keys)[0][0] or b""
        for line in lines.split(b"\n"):
            kind, _, body = line.partition(b" ")
            bodies.setdefault(kind, []).append(body)
        variables = [decode_cached(ProjectVariable, body) for body in bodies.get(b"variable", ())]
        variables.sort(key=lambda row: (row.project_id, row.group_id, row.key, row.environment_scope))
        spec, pipeline, project = (bodies.get(kind) for kind in (b"spec", b"pipeline", b"project"))
        return PayloadParts(
            spec=decode(JobSpec, spec[0]) if spec else None,
            pipeline=decode_cached(Pipeline, pipeline[0]) if pipeline else None,
            project=decode_cached(Project, project[0]) if project else None,
            variables=variables,
            settings=dict(map(_setting, bodies.get(b"setting", ()))),
        )
