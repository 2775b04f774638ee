"""Frequent queries use an index for a history of any length: checks the query plans of SQLite and PostgreSQL."""

import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from remuda.cell.store.ports import Store
from remuda.cell.store.postgres.store import PostgresStore
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import JobFilter, Page, PipelineFilter
from remuda.cell.values.deployments import Environment
from remuda.model.job import JobState, PipelineId, ProjectId, RunnerId

PROJECT = ProjectId(5)
PAGE = Page(counted=False)
ENVIRONMENT = Environment(id=7, project_id=PROJECT, name="a", slug="a", created_at=0, updated_at=0)

QUERIES: dict[str, tuple[Callable[[Store], Awaitable[object]], set[str]]] = {
    "newest success of a ref": (
        lambda store: store.pipelines.list_pipelines(PROJECT, PAGE, PipelineFilter(ref="ref-7", statuses=("success",))),
        {"pipelines_of_ref"},
    ),
    "pipelines of a ref": (
        lambda store: store.pipelines.list_pipelines(PROJECT, PAGE, PipelineFilter(ref="ref-7")),
        {"pipelines_listed_by_ref"},
    ),
    "open pipelines of a ref": (
        lambda store: store.pipelines.list_open_pipelines(PROJECT, "ref-7"),
        {"pipelines_of_ref"},
    ),
    "jobs of a runner": (
        lambda store: store.jobs.list_jobs(PAGE, JobFilter(runner_id=RunnerId(3), with_retried=True)),
        {"jobs_of_runner"},
    ),
    "jobs of a runner in states": (
        lambda store: store.jobs.list_jobs(
            PAGE, JobFilter(runner_id=RunnerId(3), states=["running", "leased"], with_retried=True)
        ),
        {"jobs_of_runner"},
    ),
    "jobs of a project in a state": (
        lambda store: store.jobs.list_jobs(
            PAGE, JobFilter(project_id=PROJECT, states=["failed"], with_retried=True, is_trigger=False)
        ),
        {"jobs_listed_by_state"},
    ),
    "jobs of a project in states": (
        lambda store: store.jobs.list_jobs(
            PAGE, JobFilter(project_id=PROJECT, states=["failed", "running"], with_retried=True)
        ),
        {"jobs_listed_by_state"},
    ),
    "jobs of a pipeline": (
        lambda store: store.jobs.list_jobs(
            PAGE, JobFilter(project_id=PROJECT, pipeline_id=PipelineId(77), is_trigger=False)
        ),
        {"jobs_of_pipeline"},
    ),
    "jobs that are coming": (
        lambda store: store.jobs.list_coming_jobs([JobState.CREATED, JobState.MANUAL], held_since=9_990),
        {"pipelines_open", "jobs_of_pipeline"},
    ),
    "pipelines of a commit": (
        lambda store: store.pipelines.list_pipelines(PROJECT, PAGE, PipelineFilter(sha="sha-7")),
        {"pipelines_of_commit"},
    ),
    "jobs of several pipelines": (
        lambda store: store.jobs.list_jobs(
            PAGE, JobFilter(project_id=PROJECT, pipeline_ids=[PipelineId(77), PipelineId(78)])
        ),
        {"jobs_of_pipeline"},
    ),
    "last deployment": (
        lambda store: store.deployments.find_last_deployment(ENVIRONMENT),
        {"deployments_of_environment"},
    ),
    "how many jobs": (lambda store: store.jobs.count_jobs(), {"jobs_by_state"}),
    "how many pipelines": (lambda store: store.pipelines.count_pipelines(), {"pipelines_open"}),
}


@pytest.mark.parametrize("query", QUERIES)
async def test_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    path = tmp_path / "cell.sqlite"
    store = SqliteStore.open(path, 1)
    run_query, indexes = QUERIES[query]
    with closing(sqlite3.connect(path)) as db:
        plan: list[str] = []

        def explain(sql: str, *values: Any) -> list[Any]:
            plan.extend(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
            return []

        async def explain_in_thread(sql: str, *values: Any) -> list[Any]:
            return explain(sql, *values)

        monkeypatch.setattr(store.database, "read", explain)
        monkeypatch.setattr(store.database, "read_in_thread", explain_in_thread)
        await run_query(store)
    await store.close()
    table_lines = [line for line in plan if re.search(r"(SEARCH|SCAN) (jobs|pipelines|deployments)\b", line)]
    used = {match[1] for line in table_lines if (match := re.search(r"INDEX (\w+)", line))}
    assert used == indexes, plan
    # A count may scan an index that contains only the counted rows.
    assert all("SEARCH" in line or "INDEX pipelines_open" in line for line in table_lines), plan


HISTORY = """
    INSERT INTO projects SELECT n, 'p' || n, 'p' || n, '{}' FROM generate_series(1, 10) AS n;
    INSERT INTO pipelines (id, project_id, iid, ref, sha, status, body, created_at, updated_at)
        SELECT n, 1 + n % 10, n, 'ref-' || n / 10 % 100, 'sha-' || n / 10 % 100,
            CASE WHEN n % 3 = 0 THEN 'failed' WHEN n > 19950 THEN 'running' WHEN n % 7 = 0 THEN 'manual'
            ELSE 'success' END,
            '{}', n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO specs SELECT n, '{}' FROM generate_series(1, 60000) AS n;
    INSERT INTO jobs (id, project_id, pipeline_id, spec_id, state, retried, runner_id, body, ref, name)
        SELECT n, 1 + (1 + n / 3) % 10, 1 + (n - 1) / 3, n,
            CASE WHEN n > 59900 THEN 'running' WHEN n % 9 = 0 THEN 'failed' WHEN n % 11 = 0 THEN 'manual'
            ELSE 'success' END,
            0, n % 50, '{}', 'main', 'job' FROM generate_series(1, 60000) AS n;
    INSERT INTO deployments (id, project_id, iid, environment_id, job_id, body)
        SELECT n, 1 + n % 10, n, 1 + n % 50, n, '{}' FROM generate_series(1, 20000) AS n;
    ANALYZE;
"""
"""Rows for the test: plans of PostgreSQL depend on the amount of data."""


@pytest.fixture
async def history(database: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(database, 1)
    db = await asyncpg.connect(database)
    await db.execute(HISTORY)
    await db.close()
    yield store
    await store.close()


async def test_postgres(history: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read, plan = history.database.fetch, list[str]()

    async def explain(sql: str, *values: Any) -> list[Any]:
        plan.extend(row[0] for row in await read(f"EXPLAIN {sql}", *values))
        return []

    monkeypatch.setattr(history.database, "fetch", explain)
    for query, (run_query, indexes) in QUERIES.items():
        plan.clear()
        await run_query(history)
        used = {name for line in plan for name in re.findall(r"(?:using|on) (\w+?_\w+)", line)}
        # For a state with hardly any rows other indexes are as good.
        assert indexes <= used <= indexes | {"jobs_by_state", "jobs_by_request", "jobs_pkey"}, (query, plan)
        assert not any("Seq Scan" in line for line in plan), (query, plan)
