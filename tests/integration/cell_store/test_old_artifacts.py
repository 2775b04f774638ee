"""Artifacts that were stored before expiry times existed are due once and then get an expiry time."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from remuda.cell.core.jobs.artifact_expiry import without_expired
from remuda.cell.store.row_bodies import encode
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.testing.builders import a_job, a_pipeline, a_project, a_spec, an_artifact

SCHEMAS = Path(__file__).parent / "schemas"
PROJECT, PIPELINE, JOB = a_project(), a_pipeline(), a_job()


async def test_old_artifacts_get_the_expiry_time_of_their_settings(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    old = an_artifact(JOB.id, created_at=1000.0, expire_in="1 week")
    body = {name: value for name, value in msgspec.to_builtins(old).items() if name not in ("expires_at", "look_at")}
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number in (1, 2):
            for statement in (SCHEMAS / f"{number}.sql").read_text().split(";\n"):
                db.execute(statement)
        db.execute("INSERT INTO schema_version VALUES (2, 1)")
        db.execute("INSERT INTO projects VALUES (1, ?, ?, ?)", (PROJECT.path, PROJECT.path, encode(PROJECT)))
        columns = (PIPELINE.id, 1, 1, PIPELINE.ref, PIPELINE.sha, PIPELINE.status, encode(PIPELINE), None, False)
        db.execute("INSERT INTO pipelines VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", columns)
        db.execute("INSERT INTO specs VALUES (?, ?)", (JOB.id, encode(a_spec(JOB.name))))
        row = (JOB.id, 1, PIPELINE.id, JOB.id, JOB.state, False, None, None, encode(JOB), None, False)
        db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("INSERT INTO artifacts VALUES (?, ?, ?)", (JOB.id, "archive", msgspec.json.encode(body)))
    store = SqliteStore.open(path, 1)
    try:
        assert [artifact.blob for artifact in await store.jobs.list_due_artifacts(1000.0, limit=10)] == [old.blob]
        await store.jobs.change_artifacts(
            JOB.id, lambda job, artifacts: without_expired(job, artifacts, now=2000.0, default="never", is_kept=False)
        )
        assert await store.jobs.list_due_artifacts(2000.0, limit=10) == []
        week = 1000.0 + 7 * 86_400
        assert [artifact.expires_at for artifact in await store.jobs.list_due_artifacts(week, limit=10)] == [week]
    finally:
        await store.close()
