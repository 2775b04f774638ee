"""The store in one SQLite file: what a cell runs on unless it is given a database server.

It decides nothing; `core.lifecycle` does, inside the writer's transactions. Writes go through a `Writer` and are
on disk when they return. Reads go straight to a second, read-only connection in the event loop: single rows by key
take microseconds, less than a thread would cost, and they see every commit that was reported.

One process at a time may open the file; the data folder's lock sees to that.
"""

import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Any, Self

from msgspec.structs import replace as replaced

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.jobs.result_limits import select_results
from remuda.cell.core.pipelines.schedules import with_pipeline
from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.paging import read_in_pieces
from remuda.cell.store.ports import Applied, Changes, Leaves
from remuda.cell.store.row_bodies import decode, encode
from remuda.cell.store.sqlite import rows
from remuda.cell.store.sqlite.access import store_error
from remuda.cell.store.sqlite.audit import SqliteAudit
from remuda.cell.store.sqlite.jobs import SqliteJobs
from remuda.cell.store.sqlite.people import SqlitePeople
from remuda.cell.store.sqlite.starts import SqliteStarts
from remuda.cell.values import (
    ALL_PIPELINES,
    Artifact,
    Family,
    Job,
    NewJob,
    Page,
    Pipeline,
    PipelineFilter,
    Runner,
    RunnerManager,
    Schedule,
    StepResult,
)
from remuda.model.job import FINAL, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import OPEN
from remuda.pipeline import JobSpec

_DOWNSTREAM = "SELECT body FROM pipelines WHERE upstream_job_id = ?"
_SORTED = "+id"
"""The few that are found are sorted; otherwise SQLite walks over all of a project because they are in order then."""


class SqliteStore(SqliteJobs, SqliteStarts, SqlitePeople, SqliteAudit):
    """A store in one file."""

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

    async def watch_changes(self) -> AsyncGenerator[Collection[JobId], None]:
        told_by_others: Sequence[Collection[JobId]] = ()
        for told in told_by_others:
            yield told

    # keys and people

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        return dict(self._rows("SELECT kid, pem FROM signing_keys ORDER BY number"))

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        def add(db: sqlite3.Connection) -> None:
            if not rows.changed(db, "INSERT OR IGNORE INTO signing_keys (kid, pem) VALUES (?, ?)", kid, pem):
                raise ConflictError(f"there is a signing key {kid} already")

        await self._write(add)

    async def remove_signing_key(self, kid: str) -> None:
        await self._write(lambda db: rows.changed(db, "DELETE FROM signing_keys WHERE kid = ?", kid))

    async def load_setting(self, name: str) -> str | None:
        found = self._rows("SELECT value FROM settings WHERE name = ?", name)
        return str(found[0][0]) if found else None

    async def put_setting(self, name: str, value: str) -> None:
        await self._write(lambda db: rows.put_setting(db, name, value))

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        sql = "SELECT name, value FROM settings WHERE name IN (SELECT value FROM json_each(?))"
        return dict(self._rows(sql, encode(list(names)).decode()))

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        def change(db: sqlite3.Connection) -> str | None:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
            changed = decide(row[0] if row else None)
            if changed is not None:
                rows.put_setting(db, name, changed)
            return changed

        return await self._write(change)

    # pipelines

    async def load_seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        return dict(self._rows("SELECT ref, sha FROM seen_refs WHERE project_id = ?", project_id))

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        return bool(self._rows("SELECT 1 FROM seen_refs WHERE project_id = ? AND ref = ?", project_id, ref))

    async def put_seen_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        def see(db: sqlite3.Connection) -> None:
            for ref, sha in refs.items():
                if sha is None:
                    rows.changed(db, "DELETE FROM seen_refs WHERE project_id = ? AND ref = ?", project_id, ref)
                else:
                    rows.see_ref(db, project_id, ref, sha)

        await self._write(see)

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
        def add(db: sqlite3.Connection) -> Family:
            owner = pipeline.project_id
            if not rows.found(db, "SELECT 1 FROM projects WHERE id = ?", owner):
                raise NotFoundError(f"there is no project {owner}")
            if there := db.execute(_DOWNSTREAM, (pipeline.upstream_job_id,)).fetchone():
                return rows.read_family(db, decode(Pipeline, there[0]))
            iid = db.execute(
                "SELECT coalesce(max(iid), 0) + 1 FROM pipelines WHERE project_id = ?", (owner,)
            ).fetchone()
            added = replaced(pipeline, id=PipelineId(self._draw(db, "pipelines")), iid=iid[0])
            rows.put_pipeline(db, added)
            for new in jobs:
                job = lifecycle.new_job(new, added, JobId(self._draw(db, "jobs")), now)
                rows.changed(db, "INSERT INTO specs VALUES (?, ?)", job.id, encode(new.spec))
                rows.add_job(db, job, job.id)
            self._apply(db, lifecycle.begin(rows.read_family(db, added), now))
            if sees:
                rows.see_ref(db, owner, *sees)
            if schedule and (kept := rows.read_schedule(db, schedule.id)):
                rows.put_schedule(db, with_pipeline(kept, schedule, added.id, due_at=due_at))
            return rows.read_family(db, rows.read_pipeline(db, added.id))

        return await self._write(add)

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return self._one(Pipeline, "SELECT body FROM pipelines WHERE id = ?", pipeline_id)

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, wanted: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        where: dict[str, Any] = {"project_id = ?": project_id, **rows.conditions(wanted)}
        return self._page(Pipeline, "pipelines", where, page, rows.order(wanted))

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        sql = (
            "SELECT body FROM pipelines WHERE project_id = ? AND ref = ?"
            f" AND status IN (SELECT value FROM json_each(?)) ORDER BY {_SORTED}"
        )
        return self._all(Pipeline, sql, project_id, ref, encode(sorted(OPEN)).decode())

    async def find_downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        return self._one(Pipeline, _DOWNSTREAM, upstream_job_id)

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        try:
            self._db.execute("BEGIN")  # both reads see the same moment
            try:
                return rows.read_family(self._db, rows.read_pipeline(self._db, pipeline_id))
            finally:
                self._db.execute("COMMIT")
        except NotFoundError:
            return None
        except sqlite3.Error as error:
            raise store_error(error) from error

    # jobs

    async def load_job(self, job_id: JobId) -> Job | None:
        return self._one(Job, "SELECT body FROM jobs WHERE id = ?", job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        sql = "SELECT body FROM jobs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return self._all(Job, sql, encode(list(job_ids)).decode())

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        return self._one(JobSpec, rows.SPEC, job_id)

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
            # Without the sign SQLite may walk over the project for the jobs of one pipeline.
            where["project_id = ?" if pipeline_id is None else "+project_id = ?"] = project_id
        if pipeline_id is not None:
            where["pipeline_id = ?"] = pipeline_id
        if runner_id is not None:
            states = states or list(JobState)  # its index has them by state
        is_merged = pipeline_id is None and project_ids is None
        if states and not is_merged:
            where["state IN (SELECT value FROM json_each(?))"] = encode(list(states)).decode()
        if not with_retried:
            where["retried = 0"] = None
        if is_trigger is not None:
            where["is_trigger = ?"] = is_trigger
        if runner_id is not None:
            where["runner_id = ?"] = runner_id
        if project_ids is not None:
            where["project_id IN (SELECT value FROM json_each(?))"] = encode(list(project_ids)).decode()
        return self._page(Job, "jobs", where, page, states=states if is_merged else ())

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        return await self._write(lambda db: rows.remove_pipeline(db, pipeline_id))

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        return await self._write(
            lambda db: self._apply(db, decide(rows.read_family(db, rows.read_pipeline(db, pipeline_id))))
        )

    def _apply(self, db: sqlite3.Connection, changes: Changes) -> Applied:
        applied = list(changes.jobs)
        for job in changes.jobs:
            rows.update_job(db, job)
        for retry in changes.retries:
            job = replaced(retry.job, id=JobId(self._draw(db, "jobs")))
            spec = db.execute("SELECT spec_id FROM jobs WHERE id = ?", (retry.of,)).fetchone()
            rows.add_job(db, job, spec[0])
            applied.append(job)
        if changes.pipeline:
            rows.put_pipeline(db, changes.pipeline)
        return Applied(jobs=tuple(applied), pipeline=changes.pipeline)

    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        sql = (
            "SELECT body FROM jobs WHERE state = 'success' AND project_id = ?1 AND ref = ?2 AND name = ?3"
            " AND (?4 IS NULL OR ?4 = (SELECT tag FROM pipelines WHERE id = jobs.pipeline_id)) ORDER BY id DESC LIMIT 1"
        )
        return self._one(Job, sql, project_id, ref, name, tag)

    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        sql = "SELECT id FROM jobs WHERE state IN (SELECT value FROM json_each(?)) ORDER BY id"
        job_ids = [JobId(row[0]) for row in self._rows(sql, encode(list(states)).decode())]
        return await read_in_pieces(job_ids, self.load_jobs, states)

    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        sql = (
            "SELECT body FROM jobs WHERE project_id = ? AND resource_group = ?"
            f" AND state IN (SELECT value FROM json_each(?)) ORDER BY {_SORTED} LIMIT 1"
        )
        return self._one(Job, sql, project_id, group, encode(sorted(states)).decode())

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        sql = "SELECT body FROM jobs WHERE state = 'leased' AND runner_id = ? AND request_id = ?"
        return self._one(Job, sql, runner_id, request_id)

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        of = f"SELECT id FROM pipelines WHERE {rows.IS_OPEN}"
        sql = (
            "SELECT jobs.id FROM"
            f" ({of} AND status IN (SELECT value FROM json_each(?)) UNION ALL"
            f" {of} AND status = 'manual' AND updated_at > ?) AS moving"
            " CROSS JOIN jobs ON jobs.pipeline_id = moving.id"
            " WHERE +jobs.state IN (SELECT value FROM json_each(?)) ORDER BY 1"
        )
        moving, wanted = encode(sorted(OPEN - {"manual"})).decode(), encode(sorted(states)).decode()
        job_ids = [JobId(row[0]) for row in await self._rows_beside(sql, moving, held_since, wanted)]
        return await read_in_pieces(job_ids, self.load_jobs, states)

    async def count_jobs(self) -> Mapping[str, int]:
        sql = "SELECT state, count(*) FROM jobs WHERE state IN (SELECT value FROM json_each(?)) GROUP BY state"
        return dict(await self._rows_beside(sql, encode(sorted(frozenset(JobState) - FINAL)).decode()))

    async def count_pipelines(self) -> Mapping[str, int]:
        return dict(
            await self._rows_beside(f"SELECT status, count(*) FROM pipelines WHERE {rows.IS_OPEN} GROUP BY status")
        )

    # runners

    async def add_runner(self, runner: Runner) -> Runner:
        def add(db: sqlite3.Connection) -> Runner:
            if rows.found(db, "SELECT 1 FROM runners WHERE token_hash = ?", runner.token_hash):
                raise ConflictError("there is a runner with this token already")
            added = replaced(runner, id=RunnerId(self._draw(db, "runners")))
            rows.changed(db, "INSERT INTO runners VALUES (?, ?, ?)", added.id, added.token_hash, encode(added))
            return added

        return await self._write(add)

    async def load_runner(self, runner_id: RunnerId) -> Runner | None:
        return self._one(Runner, "SELECT body FROM runners WHERE id = ?", runner_id)

    async def find_runner(self, token_hash: str) -> Runner | None:
        return self._one(Runner, "SELECT body FROM runners WHERE token_hash = ?", token_hash)

    async def put_runner(self, runner: Runner) -> None:
        def put(db: sqlite3.Connection) -> None:
            sql = "UPDATE runners SET token_hash = ?, body = ? WHERE id = ?"
            if not rows.changed(db, sql, runner.token_hash, encode(runner), runner.id):
                raise NotFoundError(f"there is no runner {runner.id}")

        await self._write(put)

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        return await self._write(lambda db: bool(rows.changed(db, "DELETE FROM runners WHERE id = ?", runner_id)))

    async def put_manager(self, manager: RunnerManager) -> None:
        def put(db: sqlite3.Connection) -> None:
            if not rows.found(db, "SELECT 1 FROM runners WHERE id = ?", manager.runner_id):
                raise NotFoundError(f"there is no runner {manager.runner_id}")
            sql = "INSERT OR REPLACE INTO managers VALUES (?, ?, ?)"
            rows.changed(db, sql, manager.runner_id, manager.system_id, encode(manager))

        await self._write(put)

    async def load_manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None:
        sql = "SELECT body FROM managers WHERE runner_id = ? AND system_id = ?"
        return self._one(RunnerManager, sql, runner_id, system_id)

    async def list_managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        return self._all(RunnerManager, "SELECT body FROM managers WHERE runner_id = ? ORDER BY system_id", runner_id)

    async def list_all_managers(self) -> Sequence[RunnerManager]:
        return self._all(RunnerManager, "SELECT body FROM managers ORDER BY runner_id, system_id")

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool:
        sql = "DELETE FROM managers WHERE runner_id = ? AND system_id = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, runner_id, system_id)))

    # results and artifacts

    async def add_results(self, job_id: JobId, results: Sequence[StepResult], *, limit_bytes: int) -> int:
        def add(db: sqlite3.Connection) -> int:
            rows.check_job(db, job_id)
            sql = "SELECT body FROM results WHERE job_id = ? ORDER BY seq DESC LIMIT 1"
            last = db.execute(sql, (job_id,)).fetchone()
            new, following = select_results(decode(StepResult, last[0]) if last else None, results, limit_bytes)
            values = [(job_id, result.seq, encode(result)) for result in new]
            db.executemany("INSERT INTO results VALUES (?, ?, ?)", values)
            return following

        return await self._write(add)

    async def list_results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        sql = "SELECT body FROM results WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?"
        return self._all(StepResult, sql, job_id, after, -1 if limit is None else limit)

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        def put(db: sqlite3.Connection) -> Artifact:
            rows.check_job(db, artifact.job_id)
            at = (artifact.job_id, artifact.type)
            row = db.execute("SELECT body FROM artifacts WHERE job_id = ? AND type = ?", at).fetchone()
            if row:
                return decode(Artifact, row[0])
            rows.changed(db, "INSERT INTO artifacts VALUES (?, ?, ?)", *at, encode(artifact))
            return artifact

        return await self._write(put)

    async def list_artifacts(self, job_id: JobId) -> Sequence[Artifact]:
        return self._all(Artifact, rows.ARTIFACTS, job_id)

    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], Leaves | None]
    ) -> Sequence[Artifact]:
        def change(db: sqlite3.Connection) -> Sequence[Artifact]:
            row = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            had = [decode(Artifact, body) for (body,) in db.execute(rows.ARTIFACTS, (job_id,))]
            leaves = decide(decode(Job, row[0]), had) if row else None
            if leaves is None:
                return ()
            rows.update_job(db, leaves.job)
            return rows.leave_artifacts(db, had, leaves.artifacts)

        return await self._write(change)

    async def list_due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        sql = "SELECT body FROM artifacts WHERE look_at <= ? ORDER BY look_at, job_id, type LIMIT ?"
        return self._all(Artifact, sql, now, limit)
