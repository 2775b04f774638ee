"""Old SQLite files are migrated with all their data, and get the same schema as new files."""

import contextlib
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.old_runners import EXPECTED_RESTRICTIONS, OLD_RUNNERS, restrictions

from remuda.cell.errors import DataFolderError
from remuda.cell.store import migrations
from remuda.cell.store.row_bodies import encode
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import USER_ID, ProjectVariable, UserToken
from remuda.cell.values.people import FIRST_NAMESPACE
from remuda.model.job import JobState, ProjectId
from remuda.testing.builders import a_job, a_pipeline, a_project, a_spec

SCHEMAS = Path(__file__).parent / "schemas"
"""The unchanged SQL of releases before Alembic."""

VARIABLE = ProjectVariable(project_id=ProjectId(1), key="K", value="v")
TOKEN = UserToken(token_hash="h", name="admin", id=3)
PROJECT, PIPELINE, JOB = a_project(), a_pipeline(), a_job(state=JobState.RUNNING)


def create_old_file(path: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number in range(1, version + 1):
            for statement in (SCHEMAS / f"{number}.sql").read_text().split(";\n"):
                db.execute(statement)
        db.execute("INSERT INTO schema_version VALUES (?, 1)", (version,))
        for table, row in (
            ("sequences", {"name": "jobs", "last": 17}),
            ("projects", {"id": 1, "path_key": PROJECT.path, "search_text": PROJECT.path, "body": encode(PROJECT)}),
            (
                "pipelines",
                {"id": PIPELINE.id, "project_id": 1, "iid": 1, "ref": PIPELINE.ref, "sha": PIPELINE.sha}
                | {"status": PIPELINE.status, "body": encode(PIPELINE)},
            ),
            ("variables", {"project_id": 1, "key": "K", "body": b'{"version":1,"project_id":1,"key":"K","value":"v"}'}),
            ("user_tokens", {"number": 3, "token_hash": "h", "body": b'{"token_hash":"h","name":"admin","user_id":1}'}),
            ("specs", {"id": JOB.id, "body": encode(a_spec(JOB.name))}),
            (
                "jobs",
                {"id": JOB.id, "project_id": 1, "pipeline_id": PIPELINE.id, "spec_id": JOB.id}
                | {"state": JOB.state, "retried": False, "body": encode(JOB)},
            ),
        ):
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_of_an_old_schema_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    path = tmp_path / "cell.sqlite"
    create_old_file(path, version)
    for _ in range(2):
        store = SqliteStore.open(path, 1)
        try:
            assert await store.jobs.load_job(JOB.id) == JOB
            family = await store.pipelines.load_family(PIPELINE.id)
            assert family is not None
            assert family.jobs == (JOB,)
            assert await store.pipelines.list_open_pipelines(PIPELINE.project_id, PIPELINE.ref) == [PIPELINE]
            assert await store.schedules.list_schedules(PIPELINE.project_id) == []
            assert await store.projects.list_variables(PIPELINE.project_id) == [VARIABLE]
            assert await store.people.list_user_tokens_of(USER_ID) == [TOKEN]
            assert await store.people.find_namespace("root") == FIRST_NAMESPACE
        finally:
            await store.close()
    new = tmp_path / "new.sqlite"
    await SqliteStore.open(new, 1).close()
    assert describe_schema(path) == describe_schema(new)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT last FROM sequences WHERE name = 'jobs'").fetchall() == [(17,)]


async def test_restricted_instance_runners_stay_restricted(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in migrations.statements("sqlite", None):
            db.execute(statement)
            if statement.startswith("UPDATE alembic_version SET version_num='0007'"):
                break
        db.execute("INSERT INTO cell VALUES (1)")
        for number, body in enumerate(OLD_RUNNERS, 1):
            db.execute("INSERT INTO runners (id, token_hash, body) VALUES (?, ?, ?)", (number, str(number), body))
    store = SqliteStore.open(path, 1)
    assert await restrictions(store) == EXPECTED_RESTRICTIONS
    await store.close()


async def test_an_old_file_of_another_cell_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    create_old_file(path, 2)
    with pytest.raises(DataFolderError, match=r"belongs to cell 1, not to cell 2.*--cell-id 1"):
        SqliteStore.open(path, 2)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT version FROM schema_version").fetchone() == (2,)


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    create_old_file(path, 1)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE releases (what)")
        before = list(db.iterdump())
    with pytest.raises(DataFolderError, match="releases already exists"):
        SqliteStore.open(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before


def test_the_sql_of_a_new_file_equals_that_of_all_revisions() -> None:
    """If this fails, run tools/sqlite-sql."""

    def dump_database(statements: list[str]) -> list[str]:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement).fetchall()
            return [re.sub(r"\s+", " ", line) for line in db.iterdump()]

    assert dump_database(migrations.sqlite_statements()) == dump_database(migrations.statements("sqlite", None))
    assert any(migrations.HEAD in statement for statement in migrations.sqlite_statements())
    names = sorted(file.name[1:5] for file in (Path(migrations.__file__).parent / "versions").glob("v*.py"))
    assert tuple(names) == migrations.NAMES


def test_a_new_file_needs_no_alembic(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from remuda.cell.store.open import SqliteStore;"
        "SqliteStore.open(pathlib.Path(sys.argv[1]), 1);"
        "print([name for name in sys.modules if name.split('.')[0] in ('alembic', 'sqlalchemy', 'asyncpg')])"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def describe_schema(path: Path) -> dict[str, Any]:
    """Describe the tables of a file, independent of how their SQL was written."""
    with contextlib.closing(sqlite3.connect(path)) as db:

        def query_pragma(pragma: str, name: str) -> list[tuple[Any, ...]]:
            return db.execute(f"SELECT * FROM pragma_{pragma}(?)", (name,)).fetchall()

        tables: dict[str, Any] = {}
        for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            tables[name] = {
                # A column of a primary key is never null, whether or not the SQL says so.
                "columns": [
                    (name, kind, bool(strict) or bool(key), default, key, hidden)
                    for _, name, kind, strict, default, key, hidden in query_pragma("table_xinfo", name)
                ],
                "references": sorted(
                    (row[2:4], row[4] or "id", row[5:]) for row in query_pragma("foreign_key_list", name)
                ),
                "indexes": {
                    (index if origin == "c" else (origin, *(row[2] for row in query_pragma("index_info", index)))): (
                        unique,
                        partial,
                        [row[1:] for row in query_pragma("index_xinfo", index)],
                    )
                    for _, index, unique, origin, partial in query_pragma("index_list", name)
                },
                "without rowid": "WITHOUT ROWID" in sql,
            }
        return tables
