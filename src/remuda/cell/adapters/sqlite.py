"""The store in one SQLite file: what a cell runs on unless it is given a database server.

It decides nothing; `core.lifecycle` does, inside the writer's transactions. Writes go through a `Writer` and are
on disk when they return. Reads go straight to a second, read-only connection in the event loop: single rows by key
take microseconds, less than a thread would cost, and they see every commit that was reported.

One process at a time may open the file; the data folder's lock sees to that.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace as replaced

from remuda.cell.adapters import sqlite_rows as rows
from remuda.cell.adapters.sqlite_schema import prepare
from remuda.cell.core import lifecycle
from remuda.cell.errors import ConflictError, DataFolderError, NotFoundError, StoreError
from remuda.cell.ports import Applied, Changes
from remuda.cell.values import (
    Artifact,
    Family,
    Job,
    NewJob,
    Page,
    Pipeline,
    Project,
    ProjectVariable,
    Runner,
    RunnerManager,
    StepResult,
    UserToken,
)
from remuda.lib.ids import IdRange, IdsExhaustedError, range_of_cell
from remuda.lib.sqlite_writer import ClosedError, Writer
from remuda.model.job import HELD, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec

T = TypeVar("T")

_BUSY_SECONDS = 5.0


def store_error(error: sqlite3.Error) -> StoreError:
    """What an operator should know about a failing database."""
    advice = {
        "SQLITE_FULL": "free some space where the data folder is",
        "SQLITE_READONLY": "make the data folder writable for this user",
        "SQLITE_BUSY": "another process uses the database; end it",
        "SQLITE_LOCKED": "another process uses the database; end it",
        "SQLITE_CORRUPT": "the file is damaged; restore it from a backup",
        "SQLITE_NOTADB": "the file is no database; restore it from a backup",
    }
    name = str(getattr(error, "sqlite_errorname", ""))
    hint = next((text for start, text in advice.items() if name.startswith(start)), "check the data folder's disk")
    return StoreError(f"the store cannot do this now: {error}; {hint}")


class SqliteStore:
    """A store in one file."""

    def __init__(self, writer: Writer, reader: sqlite3.Connection, ids: IdRange) -> None:
        self._writer = writer
        self._db = reader
        self._ids = ids

    @classmethod
    def open(cls, path: Path, cell_id: int) -> "SqliteStore":
        """Open or make the file; DataFolderError when it cannot be used."""
        try:
            db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                    db.execute(f"PRAGMA {pragma}")
                prepare(db, str(path), cell_id)
                reader = sqlite3.connect(
                    f"file:{quote(str(path))}?mode=ro",
                    uri=True,
                    timeout=_BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,
                )
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            raise DataFolderError(f"cannot open {path}: {store_error(error)}") from error
        return cls(Writer(db, path.name), reader, range_of_cell(cell_id))

    async def close(self) -> None:
        self._db.close()
        await asyncio.to_thread(self._writer.close)

    async def writable(self) -> None:
        await self._write(
            lambda db: db.execute("INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET writes = writes + 1")
        )

    async def _write(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.run(operation)
        except IdsExhaustedError as error:
            raise StoreError(f"{error}; give the cell a further range") from error
        except ClosedError:
            raise StoreError("the store is closed; the cell stops") from None
        except sqlite3.Error as error:
            raise store_error(error) from error

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise store_error(error) from error

    def _one(self, kind: type[T], sql: str, *values: Any) -> T | None:
        found = self._rows(sql, *values)
        return rows.decode(kind, found[0][0]) if found else None

    def _all(self, kind: type[T], sql: str, *values: Any) -> list[T]:
        return [rows.decode(kind, row[0]) for row in self._rows(sql, *values)]

    def _page(self, kind: type[T], table: str, where: Mapping[str, Any], page: Page) -> tuple[list[T], int]:
        """Newest first, of the rows for which every condition that has a value holds."""
        conditions = " AND ".join(where) or "1"
        values = [value for value in where.values() if value is not None]
        total = self._rows(f"SELECT count(*) FROM {table} WHERE {conditions}", *values)[0][0]
        sql = f"SELECT body FROM {table} WHERE {conditions} ORDER BY id DESC LIMIT ? OFFSET ?"
        return self._all(kind, sql, *values, page.size, (page.number - 1) * page.size), total

    # keys and people

    async def signing_keys(self) -> Mapping[str, bytes]:
        return dict(self._rows("SELECT kid, pem FROM signing_keys ORDER BY number"))

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        def add(db: sqlite3.Connection) -> None:
            if not rows.changed(db, "INSERT OR IGNORE INTO signing_keys (kid, pem) VALUES (?, ?)", kid, pem):
                raise ConflictError(f"there is a signing key {kid} already")

        await self._write(add)

    async def setting(self, name: str) -> str | None:
        found = self._rows("SELECT value FROM settings WHERE name = ?", name)
        return str(found[0][0]) if found else None

    async def put_setting(self, name: str, value: str) -> None:
        await self._write(lambda db: rows.changed(db, "INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value))

    async def user_token(self, token_hash: str) -> UserToken | None:
        return self._one(UserToken, "SELECT body FROM user_tokens WHERE token_hash = ?", token_hash)

    async def user_tokens(self) -> Sequence[UserToken]:
        return self._all(UserToken, "SELECT body FROM user_tokens ORDER BY number")

    async def put_user_token(self, token: UserToken) -> None:
        sql = (
            "INSERT INTO user_tokens (token_hash, body) VALUES (?, ?)"
            " ON CONFLICT (token_hash) DO UPDATE SET body = excluded.body"
        )
        await self._write(lambda db: rows.changed(db, sql, token.token_hash, rows.encode(token)))

    # projects

    async def add_project(self, project: Project) -> Project:
        path_key = project.path.casefold()
        search_text = f"{project.path}\n{project.name}".casefold()

        def add(db: sqlite3.Connection) -> Project:
            if rows.found(db, "SELECT 1 FROM projects WHERE path_key = ?", path_key):
                raise ConflictError(f"there is a project {project.path} already")
            added = replaced(project, id=ProjectId(self._draw(db, "projects")))
            rows.changed(
                db, "INSERT INTO projects VALUES (?, ?, ?, ?)", added.id, path_key, search_text, rows.encode(added)
            )
            return added

        return await self._write(add)

    async def project(self, project_id: ProjectId) -> Project | None:
        return self._one(Project, "SELECT body FROM projects WHERE id = ?", project_id)

    async def project_by_path(self, path: str) -> Project | None:
        return self._one(Project, "SELECT body FROM projects WHERE path_key = ?", path.casefold())

    async def projects(self, page: Page, *, search: str = "") -> tuple[Sequence[Project], int]:
        where = {"instr(search_text, ?) > 0": search.casefold()} if search else {}
        return self._page(Project, "projects", where, page)

    async def variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        return self._all(ProjectVariable, "SELECT body FROM variables WHERE project_id = ? ORDER BY key", project_id)

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        sql = (
            "UPDATE variables SET body = ?3 WHERE project_id = ?1 AND key = ?2"
            if replace
            else "INSERT INTO variables VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING"
        )
        return await self._write(
            lambda db: bool(rows.changed(db, sql, variable.project_id, variable.key, rows.encode(variable)))
        )

    async def remove_variable(self, project_id: ProjectId, key: str) -> bool:
        sql = "DELETE FROM variables WHERE project_id = ? AND key = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, project_id, key)))

    # pipelines

    async def seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        return dict(self._rows("SELECT ref, sha FROM seen_refs WHERE project_id = ?", project_id))

    async def see_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        def see(db: sqlite3.Connection) -> None:
            for ref, sha in refs.items():
                if sha is None:
                    rows.changed(db, "DELETE FROM seen_refs WHERE project_id = ? AND ref = ?", project_id, ref)
                else:
                    rows.see_ref(db, project_id, ref, sha)

        await self._write(see)

    async def add_pipeline(
        self, pipeline: Pipeline, jobs: Sequence[NewJob], *, now: float, sees: tuple[str, str] | None = None
    ) -> Family:
        def add(db: sqlite3.Connection) -> Family:
            owner = pipeline.project_id
            if not rows.found(db, "SELECT 1 FROM projects WHERE id = ?", owner):
                raise NotFoundError(f"there is no project {owner}")
            iid = db.execute(
                "SELECT coalesce(max(iid), 0) + 1 FROM pipelines WHERE project_id = ?", (owner,)
            ).fetchone()
            added = replaced(pipeline, id=PipelineId(self._draw(db, "pipelines")), iid=iid[0])
            rows.put_pipeline(db, added)
            for new in jobs:
                job = lifecycle.new_job(new, added, JobId(self._draw(db, "jobs")), now)
                rows.changed(db, "INSERT INTO specs VALUES (?, ?)", job.id, rows.encode(new.spec))
                rows.add_job(db, job, job.id)
            self._apply(db, lifecycle.begin(rows.read_family(db, added), now))
            if sees:
                rows.see_ref(db, owner, *sees)
            return rows.read_family(db, rows.read_pipeline(db, added.id))

        return await self._write(add)

    async def pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return self._one(Pipeline, "SELECT body FROM pipelines WHERE id = ?", pipeline_id)

    async def pipelines(
        self, project_id: ProjectId, page: Page, *, ref: str = "", status: str = "", sha: str = ""
    ) -> tuple[Sequence[Pipeline], int]:
        wanted: dict[str, Any] = {"ref = ?": ref, "status = ?": status, "sha = ?": sha}
        where = {"project_id = ?": project_id} | {sql: value for sql, value in wanted.items() if value}
        return self._page(Pipeline, "pipelines", where, page)

    async def family(self, pipeline_id: PipelineId) -> Family | None:
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

    async def job(self, job_id: JobId) -> Job | None:
        return self._one(Job, "SELECT body FROM jobs WHERE id = ?", job_id)

    async def job_spec(self, job_id: JobId) -> JobSpec | None:
        sql = "SELECT specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ?"
        return self._one(JobSpec, sql, job_id)

    async def jobs(
        self,
        page: Page,
        *,
        project_id: ProjectId | None = None,
        pipeline_id: PipelineId | None = None,
        states: Sequence[str] = (),
        with_retried: bool = False,
    ) -> tuple[Sequence[Job], int]:
        where: dict[str, Any] = {}
        if project_id is not None:
            where["project_id = ?"] = project_id
        if pipeline_id is not None:
            where["pipeline_id = ?"] = pipeline_id
        if states:
            where["state IN (SELECT value FROM json_each(?))"] = rows.encode(list(states)).decode()
        if not with_retried:
            where["retried = 0"] = None
        return self._page(Job, "jobs", where, page)

    async def change_job(self, job_id: JobId, decide: Callable[[Job], Job | None]) -> Job | None:
        def change(db: sqlite3.Connection) -> Job | None:
            row = db.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
            changed = decide(rows.decode(Job, row[0])) if row else None
            if changed is not None:
                rows.update_job(db, changed)
            return changed

        return await self._write(change)

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

    def _draw(self, db: sqlite3.Connection, table: str) -> int:
        row = db.execute("SELECT last FROM sequences WHERE name = ?", (table,)).fetchone()
        number = self._ids.after(row[0] if row else None)
        rows.changed(db, "INSERT OR REPLACE INTO sequences VALUES (?, ?)", table, number)
        return number

    async def pending_jobs(self) -> Sequence[Job]:
        return self._in_states([JobState.PENDING])

    async def held_jobs(self) -> Sequence[Job]:
        return self._in_states(HELD)

    def _in_states(self, states: Iterable[JobState]) -> list[Job]:
        sql = "SELECT body FROM jobs WHERE state IN (SELECT value FROM json_each(?)) ORDER BY id"
        return self._all(Job, sql, rows.encode(list(states)).decode())

    async def leased_by_request(self, runner_id: RunnerId, request_id: str) -> Job | None:
        sql = "SELECT body FROM jobs WHERE state = 'leased' AND runner_id = ? AND request_id = ?"
        return self._one(Job, sql, runner_id, request_id)

    async def count_jobs(self) -> Mapping[str, int]:
        return dict(self._rows("SELECT state, count(*) FROM jobs GROUP BY state"))

    # runners

    async def add_runner(self, runner: Runner) -> Runner:
        def add(db: sqlite3.Connection) -> Runner:
            if rows.found(db, "SELECT 1 FROM runners WHERE token_hash = ?", runner.token_hash):
                raise ConflictError("there is a runner with this token already")
            added = replaced(runner, id=RunnerId(self._draw(db, "runners")))
            rows.changed(db, "INSERT INTO runners VALUES (?, ?, ?)", added.id, added.token_hash, rows.encode(added))
            return added

        return await self._write(add)

    async def runner(self, runner_id: RunnerId) -> Runner | None:
        return self._one(Runner, "SELECT body FROM runners WHERE id = ?", runner_id)

    async def runner_by_token(self, token_hash: str) -> Runner | None:
        return self._one(Runner, "SELECT body FROM runners WHERE token_hash = ?", token_hash)

    async def runners(self, page: Page) -> tuple[Sequence[Runner], int]:
        return self._page(Runner, "runners", {}, page)

    async def put_runner(self, runner: Runner) -> None:
        def put(db: sqlite3.Connection) -> None:
            sql = "UPDATE runners SET token_hash = ?, body = ? WHERE id = ?"
            if not rows.changed(db, sql, runner.token_hash, rows.encode(runner), runner.id):
                raise NotFoundError(f"there is no runner {runner.id}")

        await self._write(put)

    async def remove_runner(self, runner_id: RunnerId) -> bool:
        return await self._write(lambda db: bool(rows.changed(db, "DELETE FROM runners WHERE id = ?", runner_id)))

    async def put_manager(self, manager: RunnerManager) -> None:
        def put(db: sqlite3.Connection) -> None:
            if not rows.found(db, "SELECT 1 FROM runners WHERE id = ?", manager.runner_id):
                raise NotFoundError(f"there is no runner {manager.runner_id}")
            sql = "INSERT OR REPLACE INTO managers VALUES (?, ?, ?)"
            rows.changed(db, sql, manager.runner_id, manager.system_id, rows.encode(manager))

        await self._write(put)

    async def manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None:
        sql = "SELECT body FROM managers WHERE runner_id = ? AND system_id = ?"
        return self._one(RunnerManager, sql, runner_id, system_id)

    async def managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]:
        return self._all(RunnerManager, "SELECT body FROM managers WHERE runner_id = ? ORDER BY system_id", runner_id)

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool:
        sql = "DELETE FROM managers WHERE runner_id = ? AND system_id = ?"
        return await self._write(lambda db: bool(rows.changed(db, sql, runner_id, system_id)))

    # results and artifacts

    async def add_results(self, job_id: JobId, results: Sequence[StepResult]) -> int:
        def add(db: sqlite3.Connection) -> int:
            rows.check_job(db, job_id)
            last = db.execute("SELECT coalesce(max(seq), 0) FROM results WHERE job_id = ?", (job_id,)).fetchone()
            following = int(last[0]) + 1
            for result in sorted(results, key=lambda result: result.seq):
                if result.seq == following:
                    rows.changed(db, "INSERT INTO results VALUES (?, ?, ?)", job_id, result.seq, rows.encode(result))
                    following += 1
            return following

        return await self._write(add)

    async def results(self, job_id: JobId) -> Sequence[StepResult]:
        return self._all(StepResult, "SELECT body FROM results WHERE job_id = ? ORDER BY seq", job_id)

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        def put(db: sqlite3.Connection) -> Artifact:
            rows.check_job(db, artifact.job_id)
            at = (artifact.job_id, artifact.type)
            row = db.execute("SELECT body FROM artifacts WHERE job_id = ? AND type = ?", at).fetchone()
            if row:
                return rows.decode(Artifact, row[0])
            rows.changed(db, "INSERT INTO artifacts VALUES (?, ?, ?)", *at, rows.encode(artifact))
            return artifact

        return await self._write(put)

    async def artifacts(self, job_id: JobId) -> Sequence[Artifact]:
        return self._all(Artifact, "SELECT body FROM artifacts WHERE job_id = ? ORDER BY type", job_id)
