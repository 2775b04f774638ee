"""Measures the stores: claims of jobs, and the store's part of complete job lifecycles, for each database.

The reference is PostgreSQL alone: single claims, each committed with fsync, over the same number of connections.
Nothing here asserts a time. `python -m tests.bench.store`.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
from tests.support.servers.postgres_server import PostgresServer

from remuda.cell.core.jobs import leases, lifecycle
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.store.ports import Store
from remuda.cell.store.postgres.store import PostgresStore
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import Job
from remuda.model.job import RunnerId
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs

AT_A_TIME = 16
PIPELINES = 100
JOBS_PER_PIPELINE = 20
LEASE = leases.Lease(runner_id=RunnerId(1), system_id="s", request_id=None, until=NOW + 60)


async def add_jobs(store: Store) -> list[Job]:
    """Add pending jobs of many pipelines. In the result, jobs of one pipeline are not adjacent."""
    project = await store.projects.add_project(a_project(path=f"root/app{time.monotonic_ns()}"))
    jobs = new_jobs(*(a_spec(f"job{number}") for number in range(JOBS_PER_PIPELINE)))
    families = [
        await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW) for _ in range(PIPELINES)
    ]
    return [family.jobs[number] for number in range(JOBS_PER_PIPELINE) for family in families]


async def per_second(jobs: list[Job], work: Callable[[Job], Awaitable[object]]) -> float:
    """Call `work` for each job, AT_A_TIME concurrently. Returns jobs a second."""
    remaining = iter(jobs)

    async def worker() -> None:
        for job in remaining:
            await work(job)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_A_TIME):
            group.create_task(worker())
    return len(jobs) / (time.perf_counter() - began)


async def figures(store: Store) -> tuple[float, float]:
    """Claims a second, and lifecycles a second: lease, acknowledgement, and end with the update of the pipeline."""

    async def claim(job: Job) -> Job | None:
        return await store.jobs.change_job(job.id, lambda row: leases.lease(row, LEASE, NOW))

    async def run_lifecycle(job: Job) -> None:
        leased = await claim(job)
        assert leased is not None
        await store.jobs.change_job(job.id, lambda row: leases.acknowledge(row, leased.epoch, NOW))
        outcome = Outcome(succeeded=True, reported="success")
        await store.pipelines.change_family(
            job.pipeline_id, lambda family: lifecycle.finish(family, job.id, leased.epoch, outcome, NOW)
        )

    return await per_second(await add_jobs(store), claim), await per_second(await add_jobs(store), run_lifecycle)


async def raw_claims(url: str) -> float:
    """Claims a second of PostgreSQL alone."""
    pool = await asyncpg.create_pool(url, min_size=AT_A_TIME, max_size=AT_A_TIME)
    await pool.execute("DROP TABLE IF EXISTS raw")
    await pool.execute("CREATE TABLE raw (id bigint PRIMARY KEY, state text NOT NULL, body bytea NOT NULL)")
    await pool.execute("CREATE INDEX ON raw (state, id)")
    count = PIPELINES * JOBS_PER_PIPELINE * 2
    await pool.executemany("INSERT INTO raw VALUES ($1, 'pending', $2)", [(n, b"x" * 500) for n in range(count)])
    sql = (
        "UPDATE raw SET state = 'leased' WHERE id = (SELECT id FROM raw WHERE state = 'pending' ORDER BY id"
        " LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    remaining = iter(range(count))

    async def worker() -> None:
        async with pool.acquire() as db:
            for _ in remaining:
                await db.execute(sql)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_A_TIME):
            group.create_task(worker())
    took = time.perf_counter() - began
    await pool.close()
    return count / took


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        sqlite: Store = SqliteStore.open(Path(folder) / "cell.sqlite", 1)
        with server.database() as url, server.database() as other:
            postgres: Store = await PostgresStore.open(url, 1)
            for number in range(1, 4):
                print(f"round {number}")
                for name, store in (("SQLite", sqlite), ("PostgreSQL", postgres)):
                    claims, lifecycles = await figures(store)
                    print(f"  {name:<12} {claims:8.0f} claims/s  {lifecycles:8.0f} lives/s")
            print(f"  raw claims of PostgreSQL: {await raw_claims(other):8.0f} /s")
            await postgres.close()
        await sqlite.close()


if __name__ == "__main__":
    asyncio.run(main())
