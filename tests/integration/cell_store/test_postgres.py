"""The PostgreSQL store with a real server: crashes of the server, several processes, and foreign databases."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from msgspec.structs import replace
from tests.support.cells.old_runners import EXPECTED_RESTRICTIONS, OLD_RUNNERS, restrictions
from tests.support.servers.postgres_server import PostgresServer

from remuda.cell.core.jobs import leases, lifecycle
from remuda.cell.core.jobs.family import Outcome
from remuda.cell.errors import DataFolderError, InvalidError, StoreError
from remuda.cell.store import migrations
from remuda.cell.store.postgres.notifications import JobNotifications
from remuda.cell.store.postgres.store import PostgresStore
from remuda.cell.values import Family, Job, JobFilter, Page
from remuda.cell.values.deployments import DeploymentFilter
from remuda.lib.ids import range_of_cell
from remuda.model.job import FailureReason, JobState, PipelineId, RunnerId
from remuda.pipeline.spec import Environment
from remuda.testing.builders import NOW, a_pipeline, a_project, a_runner, a_spec, new_jobs

TERMS = leases.Lease(runner_id=RunnerId(1), system_id="s", request_id=None, until=NOW + 60)
WRITER = """
import asyncio, sys
from remuda.cell.store.postgres.store import PostgresStore
from remuda.cell.errors import StoreError
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs

async def worker(store, project, number):
    while True:
        jobs = new_jobs(a_spec("a"), a_spec("b", stage="deploy", stage_index=2))
        try:
            family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
            print(family.pipeline.id, flush=True)
        except StoreError as error:
            assert error.retry_after_seconds
            print("lost", flush=True)
            await asyncio.sleep(0.05)

async def main():
    store = await PostgresStore.open(sys.argv[1], 1)
    project = await store.projects.add_project(a_project())
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(worker(store, project, number))

asyncio.run(main())
"""


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(database, 1)
    yield opened
    await opened.close()


@pytest.mark.long
async def test_reported_pipelines_survive_a_kill_of_the_server(tmp_path: Path) -> None:
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed: make packages")
    with PostgresServer() as server:
        command = [sys.executable, "-c", WRITER, server.url()]
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        reported: set[int] = set()

        async def read_lines(count: int, *, lost: bool) -> None:
            matching = 0
            while matching < count:
                assert child.stdout is not None
                line = (await child.stdout.readline()).strip()
                assert line, "the writer ended"
                if line != b"lost":
                    reported.add(int(line))
                matching += (line == b"lost") is lost

        for _ in range(3):
            await read_lines(60, lost=False)
            server.kill()
            await read_lines(8, lost=True)
            await asyncio.to_thread(server.start)
        await read_lines(60, lost=False)  # the writer's process is the same: it has connected again by itself
        child.kill()
        rest = (await child.stdout.read()).split()
        reported |= {int(line) for line in rest if line != b"lost"}
        await child.wait()
        store = await PostgresStore.open(server.url(), 1)
        try:
            pipelines, total = await store.pipelines.list_pipelines(
                (await store.projects.list_projects(Page()))[0][0].id, Page(size=100_000)
            )
            assert reported <= {pipeline.id for pipeline in pipelines}
            assert sorted(pipeline.iid for pipeline in pipelines) == list(range(1, total + 1))
            for pipeline in pipelines:
                family = await store.pipelines.load_family(pipeline.id)
                assert family is not None
                assert [job.state for job in family.jobs] == [JobState.PENDING, JobState.CREATED]
        finally:
            await store.close()


async def test_a_database_belongs_to_its_cell(database: str) -> None:
    store = await PostgresStore.open(database, 3)
    project = await store.projects.add_project(a_project())
    assert project.id == range_of_cell(3).first
    await store.close()
    with pytest.raises(DataFolderError, match=r"belongs to cell 3, not to cell 2.*--cell-id 3"):
        await PostgresStore.open(database, 2)


async def test_newer_and_foreign_databases_are_refused(database: str) -> None:
    db = await asyncpg.connect(database)
    await db.execute("CREATE TABLE notes (text text)")
    with pytest.raises(DataFolderError, match=r"something else.*notes"):
        await PostgresStore.open(database, 1)
    await db.execute("DROP TABLE notes")
    await (await PostgresStore.open(database, 1)).close()
    await db.execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(DataFolderError, match=r"schema version 0099.*newer release"):
        await PostgresStore.open(database, 1)
    await db.close()
    with pytest.raises(DataFolderError, match="cannot use the database none at 127") as caught:
        await PostgresStore.open(database.replace("remuda@", "remuda:secret@").rpartition("/")[0] + "/none", 1)
    assert "secret" not in str(caught.value)


async def test_concurrent_starts_migrate_once(database: str) -> None:
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(PostgresStore.open(database, 1)) for _ in range(5)]
    for start in starts:
        await start.result().close()
    db = await asyncpg.connect(database)
    assert await db.fetchval("SELECT version_num FROM alembic_version") == migrations.HEAD
    assert await db.fetchval("SELECT count(*) FROM cell") == 1
    await db.close()


async def test_an_older_database_is_migrated_with_what_it_holds(database: str) -> None:
    db = await asyncpg.connect(database)
    for statement in migrations.statements("postgresql", None):
        await db.execute(statement)
        if statement.startswith("UPDATE alembic_version SET version_num='0003'"):
            break
    await db.execute("INSERT INTO cell VALUES (1)")
    await db.execute("INSERT INTO settings VALUES ('kept', 'yes')")
    await db.close()
    store = await PostgresStore.open(database, 1)
    assert await store.settings.load_setting("kept") == "yes"
    assert (await store.projects.add_project(a_project())).id == 1
    await store.close()


async def test_restricted_instance_runners_stay_restricted_after_a_migration(database: str) -> None:
    db = await asyncpg.connect(database)
    for statement in migrations.statements("postgresql", None):
        await db.execute(statement)
        if statement.startswith("UPDATE alembic_version SET version_num='0007'"):
            break
    await db.execute("INSERT INTO cell VALUES (1)")
    for number, body in enumerate(OLD_RUNNERS, 1):
        await db.execute("INSERT INTO runners (id, token_hash, body) VALUES ($1, $2, $3)", number, str(number), body)
    await db.close()
    store = await PostgresStore.open(database, 1)
    assert await restrictions(store) == EXPECTED_RESTRICTIONS
    await store.close()


async def test_iids_have_no_gaps_when_several_processes_add(database: str) -> None:
    stores = [await PostgresStore.open(database, 1) for _ in range(3)]
    project = await stores[0].projects.add_project(a_project())

    async def add(store: PostgresStore) -> Family:
        return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec()), now=NOW)

    async with asyncio.TaskGroup() as group:
        adding = [group.create_task(add(stores[number % 3])) for number in range(60)]
    assert sorted(task.result().pipeline.iid for task in adding) == list(range(1, 61))
    for store in stores:
        await store.close()


async def test_numbers_of_deployments_when_several_processes_retry(database: str) -> None:
    stores = [await PostgresStore.open(database, 1) for _ in range(3)]
    project = await stores[0].projects.add_project(a_project())
    deploy = a_spec("deploy", environment=Environment(name="production"), resource_group="production")

    async def add_and_retry(store: PostgresStore) -> None:
        pipeline = a_pipeline(project_id=project.id)
        family = await store.pipelines.add_pipeline(pipeline, new_jobs(deploy), now=NOW)
        number = family.pipeline.id
        await store.pipelines.change_family(number, lambda stored: lifecycle.cancel_all(stored, NOW))
        await store.pipelines.change_family(number, lambda stored: lifecycle.retry_all(stored, NOW))

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(add_and_retry(stores[number % 3]))
    page = Page(size=100)
    deployments, _ = await stores[0].deployments.list_deployments(page, DeploymentFilter(project_id=project.id))
    assert sorted(row.iid for row in deployments) == list(range(1, 61))
    assert len(await stores[0].deployments.list_resource_groups(project.id)) == 1
    for store in stores:
        await store.close()


async def test_a_resource_group_is_taken_once(database: str) -> None:
    stores = [await PostgresStore.open(database, 1) for _ in range(3)]
    project = await stores[0].projects.add_project(a_project())
    jobs = [replace(new, resource_group="production") for new in new_jobs(a_spec("deploy"))]

    async def add(store: PostgresStore) -> Family:
        return await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)

    async with asyncio.TaskGroup() as group:
        adding = [group.create_task(add(stores[number % 3])) for number in range(30)]
    states = sorted(task.result().jobs[0].state for task in adding)
    assert states == [JobState.PENDING] + [JobState.WAITING_FOR_RESOURCE] * 29
    for store in stores:
        await store.close()


async def test_changes_of_a_job_and_of_its_family_are_not_lost(database: str) -> None:
    """Each change adds one to the stored epochs, so a lost change would be missing in the sums."""
    stores = [await PostgresStore.open(database, 1) for _ in range(3)]
    project = await stores[0].projects.add_project(a_project())
    added = await stores[0].pipelines.add_pipeline(
        a_pipeline(project_id=project.id), new_jobs(*(a_spec(name) for name in "abc")), now=NOW
    )
    job = added.jobs[1]

    async def change_job(store: PostgresStore) -> None:
        await store.jobs.change_job(job.id, lambda row: replace(row, epoch=row.epoch + 1))

    async def change_family(store: PostgresStore) -> None:
        from remuda.cell.values.changes import Changes

        def decide(family: Family) -> Changes:
            return Changes(jobs=tuple(replace(row, epoch=row.epoch + 1) for row in family.jobs))

        await store.pipelines.change_family(added.pipeline.id, decide)

    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(change_job(stores[number % 3]))
            group.create_task(change_family(stores[number % 3]))
    family = await stores[0].pipelines.load_family(added.pipeline.id)
    assert family is not None
    assert [row.epoch for row in family.jobs] == [40, 80, 40]
    for store in stores:
        await store.close()


async def test_concurrent_changes_do_not_affect_each_other(store: PostgresStore) -> None:
    """The store writes concurrent changes in one batch; an error or a retry of one does not affect the others."""
    project = await store.projects.add_project(a_project())
    added = [
        await store.pipelines.add_pipeline(
            a_pipeline(project_id=project.id), new_jobs(*(a_spec(name) for name in "abcd")), now=NOW
        )
        for _ in range(6)
    ]

    async def end(job: Job) -> None:
        await store.jobs.change_job(job.id, lambda row: leases.lease(row, TERMS, NOW), known=job)
        await store.jobs.change_job(job.id, lambda row: leases.acknowledge(row, 1, NOW))
        outcome = Outcome(succeeded=job.name != "b", reason=FailureReason.SCRIPT_FAILURE, reported="x")
        ended = await store.pipelines.change_family(
            job.pipeline_id, lambda stored: lifecycle.finish(stored, job.id, 1, outcome, NOW)
        )
        assert [changed.id for changed in ended.jobs] == [job.id]

    async def expect_refusal(pipeline_id: PipelineId) -> None:
        with pytest.raises(InvalidError):
            await store.pipelines.change_family(
                pipeline_id, lambda stored: lifecycle.play(stored, stored.jobs[0].id, NOW, {})
            )

    async with asyncio.TaskGroup() as group:
        for family in added:
            for job in family.jobs:
                group.create_task(end(job))
                group.create_task(expect_refusal(family.pipeline.id))
    async with asyncio.TaskGroup() as group:
        for family in added:
            group.create_task(
                store.pipelines.change_family(family.pipeline.id, lambda stored: lifecycle.retry_all(stored, NOW))
            )
            group.create_task(
                store.pipelines.change_family(family.pipeline.id, lambda stored: lifecycle.cancel_all(stored, NOW))
            )
    for family in added:
        loaded = await store.pipelines.load_family(family.pipeline.id)
        assert loaded is not None
        states = {job.name: job.state.value for job in loaded.jobs}
        assert states.pop("b") in ("pending", "canceled")
        assert states == dict.fromkeys("acd", "success")
        tries = JobFilter(pipeline_id=family.pipeline.id, with_retried=True)
        assert (await store.jobs.list_jobs(Page(), tries))[1] == 5


async def test_watch_changes_reports_jobs_that_other_processes_changed(database: str) -> None:
    first, second = [await PostgresStore.open(database, 1) for _ in range(2)]
    heard: asyncio.Queue[list[int]] = asyncio.Queue()

    async def listen(store: PostgresStore, into: asyncio.Queue[list[int]]) -> None:
        async for changes in store.watch_changes():
            assert not (changes.job_ids and changes.runner_ids)
            into.put_nowait(sorted(changes.job_ids or changes.runner_ids))

    async with asyncio.TaskGroup() as group:
        own: asyncio.Queue[list[int]] = asyncio.Queue()
        listeners = [group.create_task(listen(first, own)), group.create_task(listen(second, heard))]
        assert await heard.get() == await own.get() == []
        project = await first.projects.add_project(a_project())
        jobs = new_jobs(a_spec("a"), a_spec("b", stage="deploy", stage_index=2))
        family = await first.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
        job_id = family.jobs[0].id
        assert await heard.get() == [job_id]
        await first.jobs.change_job(job_id, lambda row: replace(row, priority=7))
        assert await heard.get() == [job_id]
        await first.jobs.change_job(job_id, lambda row: replace(row, state=JobState.LEASED))
        assert await heard.get() == [job_id]
        runner = await first.runners.add_runner(a_runner())
        await first.runners.change_runner(runner.id, lambda row: replace(row, paused=True))
        assert await heard.get() == [runner.id]
        await first.runners.remove_runner(runner.id)
        assert await heard.get() == [runner.id]
        # After a lost connection the store connects again and yields no ids: changes may have been missed.
        db = await asyncpg.connect(database)
        listening = "query LIKE 'LISTEN%' OR query LIKE '%pg_notify%'"
        await db.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() AND ({listening})"
        )
        await db.close()
        while await heard.get() != []:
            continue
        await second.runners.add_runner(a_runner())
        for listener in listeners:
            listener.cancel()
    assert own.qsize() <= 1, "a process is not notified of its own changes"
    await first.close()
    await second.close()


@pytest.mark.parametrize("later", [1, 2], ids=["the same runner", "another runner"])
async def test_a_runner_that_changes_while_a_notification_is_sent(
    database: str, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = JobNotifications(database)
    later_runners = [RunnerId(later)]
    execute = asyncpg.Connection.execute

    async def change_meanwhile(db: asyncpg.Connection, query: str, *values: object) -> str:
        status = str(await execute(db, query, *values))
        if "pg_notify" in query and later_runners:
            sender.send_runner(later_runners.pop())
        return status

    monkeypatch.setattr(asyncpg.Connection, "execute", change_meanwhile)
    heard: asyncio.Queue[str] = asyncio.Queue()
    db = await asyncpg.connect(database)
    # Not with `receive`, which joins what arrives together.
    await db.add_listener("remuda_runners", lambda *message: heard.put_nowait(message[-1]))
    sending = asyncio.create_task(_send_and_receive(sender))
    async with asyncio.timeout(20):
        assert await heard.get() == "1"
        assert await heard.get() == str(later)
    sending.cancel()
    await db.close()


async def _send_and_receive(sender: JobNotifications) -> None:
    async for _ in sender.receive():
        sender.send_runner(RunnerId(1))


async def test_a_read_only_server_fails_the_check(store: PostgresStore, database: str) -> None:
    await store.settings.put_setting("a", "b")
    db = await asyncpg.connect(database)
    name = database.rpartition("/")[2]
    await db.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'remuda%'")
    assert await store.settings.load_setting("a") == "b"
    with pytest.raises(StoreError, match="primary"):
        await store.check_writable()
    await db.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await db.close()


async def test_a_closed_store_raises_a_store_error(database: str) -> None:
    store = await PostgresStore.open(database, 1)
    await store.close()
    with pytest.raises(StoreError):
        await store.settings.put_setting("a", "b")
    with pytest.raises(StoreError):
        await store.settings.load_setting("a")
    await store.close()


async def test_null_bytes_and_long_texts(store: PostgresStore) -> None:
    project = await store.projects.add_project(a_project(name="a\0b", description="c\0d"))
    long = "x" * 300
    jobs = new_jobs(a_spec("n\0me"), a_spec(long))
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id, ref=long, name="\0"), jobs, now=NOW)
    for job in family.jobs:
        done = replace(job, state=JobState.SUCCESS)
        await store.jobs.change_job(job.id, lambda row, done=done: done)  # type: ignore[misc]
        assert await store.jobs.find_newest_success(project.id, job.ref, job.name) == done
    assert await store.jobs.find_newest_success(project.id, long, "x" * 301) is None
    assert await store.pipelines.list_open_pipelines(project.id, long) == [family.pipeline]
    assert (await store.projects.list_projects(Page()))[0] == [project]
    assert await store.projects.find_project("acme/shop\0") is None
    assert await store.runners.find_runner("\0") is None


async def test_concurrent_ends_in_several_processes_end_their_pipelines(store: PostgresStore, database: str) -> None:
    """Most ends are stored without reading the pipeline; the last one always ends the pipeline."""
    other = await PostgresStore.open(database, 1)
    project = await store.projects.add_project(a_project())
    runner = await store.runners.add_runner(a_runner())
    terms = replace(TERMS, runner_id=runner.id)
    ended_alone = 0

    async def run_job(job: Job, process_store: PostgresStore) -> None:
        nonlocal ended_alone
        leased = leases.lease(job, terms, NOW)
        assert leased is not None
        assert await process_store.jobs.lease_job(job, leased, runner)
        applied = await process_store.pipelines.change_family(
            job.pipeline_id, lambda family: lifecycle.acknowledge(family, job.id, leased.epoch, NOW)
        )
        started = next(row for row in applied.jobs if row.id == job.id)
        outcome = Outcome(succeeded=True, reported="success")
        ended = lifecycle.finish_alone(started, leased.epoch, outcome, NOW)
        assert ended is not None
        if await process_store.jobs.end_beside(started, ended):
            ended_alone += 1
        else:
            await process_store.pipelines.change_family(
                job.pipeline_id, lambda family: lifecycle.finish(family, job.id, leased.epoch, outcome, NOW)
            )

    new = [replace(job, ends_alone=True) for job in new_jobs(*(a_spec(f"job{number}") for number in range(10)))]
    for _ in range(20):
        family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new, now=NOW)
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(family.jobs):
                group.create_task(run_job(job, store if number % 2 else other))
        pipeline = await store.pipelines.load_pipeline(family.pipeline.id)
        assert pipeline is not None
        assert pipeline.status == "success"
    assert ended_alone
    await other.close()
