"""The SQLite store with a real file: kill -9, foreign files, a full disk, and the cost of queries."""

import asyncio
import sqlite3
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.cell.errors import DataFolderError, StoreError
from remuda.cell.store import paging
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.values import Page
from remuda.lib.ids import range_of_cell
from remuda.model.job import JobState
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs

WRITER = """
import asyncio, sys
from pathlib import Path
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.testing.builders import NOW, a_pipeline, a_project, a_spec, new_jobs

async def worker(store, project, number):
    while True:
        jobs = new_jobs(a_spec("a"), a_spec("b", stage="deploy", stage_index=2))
        family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
        print(family.pipeline.id, flush=True)

async def main():
    store = SqliteStore.open(Path(sys.argv[1]), 1)
    project = await store.projects.add_project(a_project())
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(worker(store, project, number))

asyncio.run(main())
"""


async def test_reported_pipelines_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    reported = {int(await child.stdout.readline()) for _ in range(100)}
    child.kill()
    reported |= {int(line) for line in (await child.stdout.read()).splitlines() if line}
    await child.wait()
    store = SqliteStore.open(path, 1)
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
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    db.close()


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    store = SqliteStore.open(path, 3)
    project = await store.projects.add_project(a_project())
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec()), now=NOW)
    await store.close()
    store = SqliteStore.open(path, 3)
    assert await store.pipelines.load_family(family.pipeline.id) == family
    assert project.id == range_of_cell(3).first
    assert (await store.projects.add_project(a_project(path="acme/other"))).id == project.id + 1
    await store.close()


async def test_a_store_belongs_to_its_cell(tmp_path: Path) -> None:
    await SqliteStore.open(tmp_path / "cell.sqlite", 1).close()
    with pytest.raises(DataFolderError, match=r"belongs to cell 1, not to cell 2.*--cell-id 1"):
        SqliteStore.open(tmp_path / "cell.sqlite", 2)


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cell.sqlite"
    await SqliteStore.open(path, 1).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE alembic_version SET version_num = '0099'")
    db.close()
    before = path.read_bytes()
    with pytest.raises(DataFolderError, match=r"schema version 0099.*newer release"):
        SqliteStore.open(path, 1)
    assert path.read_bytes() == before


def test_files_that_are_no_store_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to look like one\n" * 100)
    with pytest.raises(DataFolderError, match="cannot open"):
        SqliteStore.open(text, 1)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    before = other.read_bytes()
    with pytest.raises(DataFolderError, match="not the database of a cell"):
        SqliteStore.open(other, 1)
    assert other.read_bytes() == before
    with pytest.raises(DataFolderError, match="cannot open"):
        SqliteStore.open(tmp_path / "missing" / "cell.sqlite", 1)


async def test_a_full_disk_raises_an_error_and_leaves_no_partial_write(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    project = await store.projects.add_project(a_project())
    pages = await store.database.writer.run(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    await store.database.writer.run(lambda db: db.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone())
    jobs = new_jobs(*(a_spec(f"job{number}") for number in range(50)))
    stored = 0

    async def fill() -> None:
        nonlocal stored
        while True:
            await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
            stored += 1

    with pytest.raises(StoreError, match=r"full.*free some space"):
        await fill()
    assert (await store.jobs.list_jobs(Page()))[1] == stored * 50
    await store.database.writer.run(lambda db: db.execute("PRAGMA max_page_count = 100000").fetchone())
    await store.check_writable()
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), new_jobs(a_spec()), now=NOW)
    assert family.pipeline.iid == stored + 1
    await store.close()


async def test_a_failed_write_does_not_fail_others_of_its_batch(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)

    def broken(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO settings VALUES ('half', 'written')")
        db.execute("INSERT INTO nowhere VALUES (1)")

    async with asyncio.TaskGroup() as group:
        good = [group.create_task(store.settings.put_setting(f"s{number}", "x")) for number in range(20)]
        with pytest.raises(StoreError, match="nowhere"):
            await store.database.write(broken)
        good += [group.create_task(store.settings.put_setting(f"t{number}", "x")) for number in range(20)]
    assert await store.settings.load_setting("half") is None
    assert await store.settings.load_setting("s19") == await store.settings.load_setting("t19") == "x"
    await store.close()


async def test_a_read_sees_every_write_that_was_reported(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    project = await store.projects.add_project(a_project())
    jobs = new_jobs(*(a_spec(f"job{number}") for number in range(100)))
    family = await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)

    async def change(number: int) -> None:
        job = family.jobs[number]
        for epoch in range(1, 6):
            await store.jobs.change_job(job.id, lambda row: replace(row, epoch=epoch))  # noqa: B023
            seen = await store.jobs.load_job(job.id)
            assert seen is not None
            assert seen.epoch == epoch

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(change(number))
    await store.close()


async def test_a_long_list_does_not_block_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PIECE", 10)
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    project = await store.projects.add_project(a_project())
    jobs = new_jobs(*(a_spec(f"job{number}") for number in range(100)))
    await store.pipelines.add_pipeline(a_pipeline(project_id=project.id), jobs, now=NOW)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        task = group.create_task(count_turns())
        assert len(await store.jobs.list_jobs_in([JobState.PENDING])) == 100
        task.cancel()
    assert turns >= 9
    await store.close()


async def test_the_cost_of_frequent_queries_does_not_grow_with_the_history(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    project = await store.projects.add_project(a_project())
    costs: list[tuple[int, int]] = []

    async def cost(query: Awaitable[object]) -> int:
        """Count the steps of SQLite's virtual machine, in tens."""
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        store.database.reader.set_progress_handler(count, 10)
        await query
        store.database.reader.set_progress_handler(None, 0)
        return steps

    # The first round is a warm-up.
    for size in (1, 10, 500):
        for number in range(size):
            pipeline = a_pipeline(project_id=project.id, ref=f"topic-{number}", status="success")
            await store.pipelines.add_pipeline(pipeline, (), now=NOW)
        jobs = new_jobs(*(a_spec(f"deploy-{number}", resource_group=f"group-{number}") for number in range(size)))
        await store.pipelines.add_pipeline(a_pipeline(project_id=project.id, ref="topic"), jobs, now=NOW)
        costs.append(
            (
                await cost(store.pipelines.list_open_pipelines(project.id, "main")),
                await cost(store.jobs.find_first_of_group(project.id, "production", [JobState.WAITING_FOR_RESOURCE])),
            )
        )
    assert all(later <= earlier + 2 for earlier, later in zip(*costs[1:], strict=True)), costs
    await store.close()


async def test_a_closed_store_raises_a_store_error(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "cell.sqlite", 1)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.settings.put_setting("a", "b")
    with pytest.raises(StoreError):
        await store.settings.load_setting("a")
    await store.close()
