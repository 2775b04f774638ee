"""The part of the SQLite store through which the calls of runners go: changes of single jobs, and what payloads need.

Nothing is decided here. What many requests want to change at the same time is stored with one statement, which is a
transaction by itself. Python goes on with another thread whenever SQLite is called and has to come back afterwards, so
what a job's life takes on SQLite is the number of such calls rather than what they do: hence one statement where there
could be many, and one row.

Invariant: a job is changed only if its row is still, byte for byte, what the change was made on, or inside a
transaction in which it was read.
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from remuda.cell.store.ports import Belongings
from remuda.cell.store.row_bodies import decode, decode_again, encode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.access import SqliteFile
from remuda.cell.store.write_batching import Together
from remuda.cell.values import UNDER_WAY, Job, Pipeline, Project, ProjectVariable, Runner
from remuda.lib.ids import IdRange
from remuda.lib.sqlite_writer import Writer
from remuda.model.job import JobId, RunnerId
from remuda.pipeline import JobSpec

_BELONGINGS = (
    # A line for each; no body has a line break in it, because it is JSON.
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
"""All that a payload is made of, read at one go."""
_setting = msgspec.json.Decoder(tuple[str, str]).decode


class _Write(NamedTuple):
    """A job as it shall be stored, if its row is still `before`."""

    before: bytes
    job: Job
    runner: bytes | None = None
    """To whom it is leased: a runner that is still like this, by a call that has no job yet."""
    is_beside: bool = False
    """It ends while a later job of its pipeline is under way."""

    def values(self) -> tuple[Any, ...]:
        job = self.job
        to = (job.state, job.retried, job.runner_id, job.request_id, encode(job))
        return job.id, *to, self.before, self.runner, self.is_beside


@lru_cache
def _store_jobs(many: int) -> str:
    """The statement for so many changes. Each sees what was before any of them."""
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
        # From behind: the jobs at the front of a large pipeline are over.
        f" AND later.id > jobs.id AND later.retried = 0 AND later.state IN ({rows.in_words(UNDER_WAY)})"
        " ORDER BY later.id DESC))"
    )


class SqliteJobs(SqliteFile):
    """Single jobs."""

    def __init__(self, writer: Writer, path: Path, ids: IdRange) -> None:
        super().__init__(writer, path, ids)
        self._calls: set[tuple[RunnerId, str] | None] = set()
        """Calls of runners for which a hand-out is being stored."""
        self._job_lane = Together(self._store_jobs, lanes=1)

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        hoped = decide(known) if known else None
        if known and hoped and await self._job_lane.make(_Write(encode(known), hoped)):
            return hoped

        def change(db: sqlite3.Connection) -> Job | None:
            row = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            changed = decide(decode(Job, row[0])) if row else None
            if changed is not None:
                rows.update_job(db, changed)
            return changed

        return await self._write(change)

    async def end_beside(self, known: Job, ended: Job) -> bool:
        return bool(await self._job_lane.make(_Write(encode(known), ended, is_beside=True)))

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> Belongings | None:
        call = (runner.id, leased.request_id) if leased.request_id else None
        if call and call in self._calls:
            return None  # of two hand-outs for the same call neither would see the other
        self._calls.add(call)
        try:
            found = await self.load_belongings(leased, settings)
            return found if await self._job_lane.make(_Write(encode(known), leased, encode(runner))) else None
        finally:
            self._calls.discard(call)

    async def _store_jobs(self, writes: Sequence[_Write]) -> Sequence[bool]:
        """Whether each is stored."""
        # Of two changes of a job neither has seen the other.
        first = {write.job.id: write for write in reversed(writes)}
        sql = _store_jobs(len(first))
        values = [value for write in first.values() for value in write.values()]

        def store(db: sqlite3.Connection) -> Collection[JobId]:
            stored = rows.changed(db, sql, *values)
            if stored in (0, len(first)):
                return first.keys() if stored else ()
            ids = encode(list(first)).decode()
            bodies = dict(db.execute("SELECT id, body FROM jobs WHERE id IN (SELECT value FROM json_each(?))", (ids,)))
            return {job_id for job_id, write in first.items() if bodies.get(job_id) == encode(write.job)}

        stored = await self._write(store, is_statement=True)
        return [write.job.id in stored and first[write.job.id] is write for write in writes]

    async def load_belongings(self, job: Job, settings: Collection[str] = ()) -> Belongings:
        groups, names = encode([0, *job.group_ids]).decode(), encode(list(settings)).decode()
        keys = (job.project_id, groups, job.id, job.pipeline_id, job.project_id, names)
        found: dict[bytes, list[bytes]] = {}
        lines: bytes = self._rows(_BELONGINGS, *keys)[0][0] or b""
        for line in lines.split(b"\n"):
            kind, _, body = line.partition(b" ")
            found.setdefault(kind, []).append(body)
        variables = [decode_again(ProjectVariable, body) for body in found.get(b"variable", ())]
        variables.sort(key=lambda each: (each.project_id, each.group_id, each.key, each.environment_scope))
        spec, pipeline, project = (found.get(kind) for kind in (b"spec", b"pipeline", b"project"))
        return Belongings(
            spec=decode(JobSpec, spec[0]) if spec else None,
            pipeline=decode_again(Pipeline, pipeline[0]) if pipeline else None,
            project=decode_again(Project, project[0]) if project else None,
            variables=variables,
            settings=dict(map(_setting, found.get(b"setting", ()))),
        )
