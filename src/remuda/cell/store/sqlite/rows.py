"""How values become rows of the SQLite store and rows become values again. Called inside a connection's transaction."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any

from remuda.cell.errors import NotFoundError
from remuda.cell.store.row_bodies import decode, decode_job, encode
from remuda.cell.values import Artifact, Family, Job, Pipeline, PipelineFilter, Schedule
from remuda.model.job import OCCUPYING, JobId, JobState, PipelineId, ProjectId


def changed(db: sqlite3.Connection, sql: str, *values: Any) -> int:
    """Run a statement; how many rows it changed."""
    return db.execute(sql, values).rowcount


def found(db: sqlite3.Connection, sql: str, *values: Any) -> bool:
    return db.execute(sql, values).fetchone() is not None


def check_job(db: sqlite3.Connection, job_id: JobId) -> None:
    if not found(db, "SELECT 1 FROM jobs WHERE id = ?", job_id):
        raise NotFoundError(f"there is no job {job_id}")


def put_setting(db: sqlite3.Connection, name: str, value: str) -> None:
    changed(db, "INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)


def see_ref(db: sqlite3.Connection, project_id: ProjectId, ref: str, sha: str) -> None:
    changed(db, "INSERT OR REPLACE INTO seen_refs VALUES (?, ?, ?)", project_id, ref, sha)


IS_OPEN = "status NOT IN ('success', 'failed', 'canceled', 'skipped')"
"""Of pipelines, in the very words of the index `pipelines_open`."""


def put_pipeline(db: sqlite3.Connection, pipeline: Pipeline) -> None:
    sql = (
        "INSERT INTO pipelines VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET status = excluded.status, body = excluded.body"
    )
    columns = (pipeline.id, pipeline.project_id, pipeline.iid, pipeline.ref, pipeline.sha, pipeline.status)
    changed(db, sql, *columns, encode(pipeline), pipeline.upstream_job_id, pipeline.is_child)


def in_words(states: Collection[JobState]) -> str:
    """States as they stand in a statement."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


def conditions(wanted: PipelineFilter) -> dict[str, Any]:
    """What SQL asks of a pipeline's row, with the values."""
    compared = {
        "ref = ?": wanted.ref or None,
        "sha = ?": wanted.sha or None,
        "source = ?": wanted.source or None,
        "name = ?": wanted.name or None,
        "tag = ?": wanted.tag,
        "(yaml_errors IS NOT NULL) = ?": wanted.has_mistakes,
        "schedule_id = ?": wanted.schedule_id,
        "user_id = ?": wanted.user_id,
        "updated_at > ?": wanted.updated_after,
        "updated_at < ?": wanted.updated_before,
        "created_at > ?": wanted.created_after,
        "created_at < ?": wanted.created_before,
        "status = ?": wanted.status,
        "status IN (SELECT value FROM json_each(?))": (
            None if wanted.statuses is None or wanted.status else encode(wanted.statuses).decode()
        ),
    }
    asked: dict[str, Any] = {sql: value for sql, value in compared.items() if value is not None}
    return asked if wanted.source else {**asked, "is_child = 0": None}


def order(wanted: PipelineFilter) -> str:
    """The order of a list in SQL."""
    direction = "ASC" if wanted.ascending else "DESC"
    column = {"status": "status", "ref": "ref", "updated_at": "updated_at", "user_id": "user_id"}.get(wanted.order_by)
    return f"{column} {direction}, id {direction}" if column else f"id {direction}"


def read_pipeline(db: sqlite3.Connection, pipeline_id: PipelineId) -> Pipeline:
    row = db.execute("SELECT body FROM pipelines WHERE id = ?", (pipeline_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no pipeline {pipeline_id}")
    return decode(Pipeline, row[0])


def remove_pipeline(db: sqlite3.Connection, pipeline_id: PipelineId) -> bool:
    """With everything that belongs to it; whether it was there."""
    found = "SELECT id FROM jobs WHERE pipeline_id = ?"
    specs = [row[0] for row in db.execute("SELECT DISTINCT spec_id FROM jobs WHERE pipeline_id = ?", (pipeline_id,))]
    for table in ("results", "artifacts"):
        changed(db, f"DELETE FROM {table} WHERE job_id IN ({found})", pipeline_id)
    changed(db, "DELETE FROM jobs WHERE pipeline_id = ?", pipeline_id)
    db.executemany("DELETE FROM specs WHERE id = ?", [(spec_id,) for spec_id in specs])
    return bool(changed(db, "DELETE FROM pipelines WHERE id = ?", pipeline_id))


def read_family(db: sqlite3.Connection, pipeline: Pipeline) -> Family:
    # As one row: each further one is another call of SQLite, during which Python goes on with another thread.
    # No body has a line break in it, because it is JSON.
    sql = (
        "SELECT CAST(group_concat(body, char(10)) AS BLOB)"
        " FROM (SELECT body FROM jobs WHERE pipeline_id = ? AND retried = 0 ORDER BY id)"
    )
    bodies: bytes | None = db.execute(sql, (pipeline.id,)).fetchone()[0]
    jobs = tuple(map(decode_job, bodies.split(b"\n"))) if bodies else ()
    return Family(pipeline=pipeline, jobs=jobs, taken=_taken(db, pipeline, jobs))


def _taken(db: sqlite3.Connection, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
    """The resource groups that a job of another pipeline has."""
    wanted = {job.resource_group for job in jobs if job.resource_group}
    if not wanted:
        return frozenset()
    sql = (
        "SELECT DISTINCT resource_group FROM jobs WHERE project_id = ? AND pipeline_id != ?"
        " AND resource_group IN (SELECT value FROM json_each(?)) AND state IN (SELECT value FROM json_each(?))"
    )
    groups, states = encode(sorted(wanted)).decode(), encode(sorted(OCCUPYING)).decode()
    return frozenset(row[0] for row in db.execute(sql, (pipeline.project_id, pipeline.id, groups, states)))


def read_schedule(db: sqlite3.Connection, schedule_id: int) -> Schedule | None:
    row = db.execute("SELECT body FROM schedules WHERE id = ?", (schedule_id,)).fetchone()
    return decode(Schedule, row[0]) if row else None


def put_schedule(db: sqlite3.Connection, schedule: Schedule) -> None:
    sql = (
        "INSERT INTO schedules VALUES (?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET next_run_at = excluded.next_run_at, body = excluded.body"
    )
    due = schedule.next_run_at if schedule.active else None
    changed(db, sql, schedule.id, schedule.project_id, due, encode(schedule))


def add_job(db: sqlite3.Connection, job: Job, spec_id: int) -> None:
    columns = (job.id, job.project_id, job.pipeline_id, spec_id, job.state, job.retried, job.runner_id, job.request_id)
    sql = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    changed(db, sql, *columns, encode(job), job.resource_group or None, job.is_trigger)


_UPDATE_JOB = "UPDATE jobs SET state = ?, retried = ?, runner_id = ?, request_id = ?, body = ? WHERE id = ?"


def update_job(db: sqlite3.Connection, job: Job) -> None:
    changed(db, _UPDATE_JOB, job.state, job.retried, job.runner_id, job.request_id, encode(job), job.id)


SPEC = "SELECT specs.body FROM jobs JOIN specs ON specs.id = jobs.spec_id WHERE jobs.id = ?"
ARTIFACTS = "SELECT body FROM artifacts WHERE job_id = ? ORDER BY type"


def leave_artifacts(db: sqlite3.Connection, had: Sequence[Artifact], left: Sequence[Artifact]) -> Sequence[Artifact]:
    """Store those that are left of what a job had; the ones that are gone."""
    kept = {artifact.type: artifact for artifact in left}
    for artifact in had:
        if artifact.type not in kept:
            changed(db, "DELETE FROM artifacts WHERE job_id = ? AND type = ?", artifact.job_id, artifact.type)
        elif kept[artifact.type] != artifact:
            sql = "UPDATE artifacts SET body = ? WHERE job_id = ? AND type = ?"
            changed(db, sql, encode(kept[artifact.type]), artifact.job_id, artifact.type)
    return [artifact for artifact in had if artifact.type not in kept]
