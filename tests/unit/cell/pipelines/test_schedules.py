"""Pipeline schedules in virtual time, with a memory store and a starter that stores the requested pipelines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.pipelines.schedules import with_next_time
from remuda.cell.errors import InvalidError, StoreError
from remuda.cell.pipelines.schedules import Schedules
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.values import Page, Pipeline, Project, Schedule
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import VirtualClock, settle
from remuda.testing.builders import SHA, a_pipeline, a_project, a_spec, new_jobs

MINUTE, HOUR, DAY = 60, 3600, 86400
START = 1_750_000_040.0
"""A time with 15:07:20 UTC."""


class ProcessKilledError(BaseException):
    """Stands for the end of the process: no handler of `Exception` catches it."""


class Refs:
    """A repository with one branch."""

    async def commit_of(self, repo: str, ref: str) -> str | None:
        return SHA if ref == "refs/heads/main" else None


class RecordingStarter:
    """Records each request and stores its pipeline; raises the errors that the test has set."""

    def __init__(self, store: MemoryStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.errors_before: list[BaseException] = []
        """Errors to raise before the pipeline is stored, one per call."""
        self.errors_after: list[BaseException] = []
        """Errors to raise after the pipeline is stored, one per call."""
        self.slow: dict[str, asyncio.Event] = {}
        """Events that a start waits for, by the description of the schedule."""
        self.requests: list[PipelineRequest] = []

    async def start(self, request: PipelineRequest) -> Pipeline:
        self.requests.append(request)
        await asyncio.sleep(0)
        if request.schedule is not None and request.schedule.description in self.slow:
            await self.slow[request.schedule.description].wait()
        if self.errors_before:
            raise self.errors_before.pop()
        family = await self._store.pipelines.add_pipeline(
            a_pipeline(project_id=request.project.id, source=request.source),
            new_jobs(a_spec()),
            now=self._clock.now(),
            schedule=request.schedule,
        )
        if self.errors_after:
            raise self.errors_after.pop()
        return family.pipeline


class Bench:
    """The schedules of a cell with one project."""

    def __init__(self, store: MemoryStore, project: Project) -> None:
        self.clock = VirtualClock(START)
        self.store = store
        self.project = project
        self.starter = RecordingStarter(store, self.clock)
        self.schedules = self.reopen()

    def reopen(self) -> Schedules:
        """Create the schedules as a restart of the process does."""
        return Schedules(store=self.store, repos=Refs(), starter=self.starter, clock=self.clock)

    async def add(self, cron: str, **changes: Any) -> Schedule:
        now = self.clock.now()
        values: dict[str, Any] = {"id": 0, "project_id": self.project.id, "description": cron, "ref": "main"}
        schedule = Schedule(**(values | {"cron": cron, "created_at": now, "updated_at": now} | changes))
        return await self.store.schedules.add_schedule(with_next_time(schedule, now))

    async def load(self, schedule: Schedule) -> Schedule:
        row = await self.store.schedules.load_schedule(schedule.id)
        assert row is not None
        return row

    async def count_pipelines(self) -> int:
        return (await self.store.pipelines.list_pipelines(self.project.id, Page()))[1]

    @asynccontextmanager
    async def watch(self, schedules: Schedules | None = None) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task((schedules or self.schedules).watch(stop), name="schedules")
            await settle()
            yield
            stop.set()


@pytest.fixture
async def bench() -> Bench:
    store = MemoryStore()
    return Bench(store, await store.projects.add_project(a_project()))


async def test_a_schedule_runs_at_its_times(bench: Bench) -> None:
    schedule = await bench.add("*/15 * * * *", variables={"COLOUR": "red"}, file_variables=("COLOUR",))
    async with bench.watch():
        await bench.clock.advance(7 * MINUTE)
        assert await bench.count_pipelines() == 0
        await bench.clock.advance(MINUTE)
        assert await bench.count_pipelines() == 1
        await bench.clock.advance(HOUR)
        assert await bench.count_pipelines() == 5
    request = bench.starter.requests[0]
    assert (request.source, request.ref, request.sha) == ("schedule", "refs/heads/main", SHA)
    assert (request.variables, request.file_variables) == ({"COLOUR": "red"}, frozenset({"COLOUR"}))
    assert request.predefined == {"CI_PIPELINE_SCHEDULE_DESCRIPTION": "*/15 * * * *"}
    assert (await bench.load(schedule)).last_pipeline_id == 5


async def test_a_schedule_ends_with_its_project(bench: Bench) -> None:
    schedule = await bench.add("* * * * *")
    now = bench.clock.now()
    await bench.store.projects.change_project(bench.project.id, lambda row: replace(row, removed_at=now))
    async with bench.watch():
        await bench.clock.advance(HOUR)
    assert bench.starter.requests == []
    assert await bench.store.schedules.load_schedule(schedule.id) is None


async def test_every_schedule_runs_at_its_own_times(bench: Bench) -> None:
    every_minute = await bench.add("* * * * *")
    hourly = await bench.add("@hourly")
    inactive = await bench.add("* * * * *", active=False)
    async with bench.watch():
        await bench.clock.advance(HOUR)
    assert await bench.count_pipelines() == 61
    assert (await bench.load(every_minute)).next_run_at == START - 20 + HOUR + MINUTE
    assert (await bench.load(hourly)).last_pipeline_id
    assert (await bench.load(inactive)).last_pipeline_id is None


async def test_a_new_or_changed_schedule_takes_effect_at_once(bench: Bench) -> None:
    async with bench.watch():
        await bench.clock.advance(MINUTE)
        schedule = await bench.add("* * * * *")
        bench.schedules.look_again()
        await settle()
        assert await bench.count_pipelines() == 0
        # This is less than the interval of the regular check.
        await bench.clock.advance(40)
        assert await bench.count_pipelines() == 1
        await bench.store.schedules.change_schedule(
            schedule.id, lambda row: replace(row, next_run_at=bench.clock.now())
        )
        bench.schedules.look_again()
        await settle()
        assert await bench.count_pipelines() == 2


async def test_runs_missed_while_the_cell_was_down_are_replaced_by_one_run(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    await bench.clock.advance(3 * DAY)
    async with bench.watch():
        assert await bench.count_pipelines() == 1
        await bench.clock.advance(MINUTE)
        assert await bench.count_pipelines() == 1
        next_at = (await bench.load(schedule)).next_run_at
        assert next_at is not None
        assert 0 < next_at - bench.clock.now() <= HOUR


async def test_a_failed_run_stores_its_error_and_the_next_run_starts(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starter.errors_before = [InvalidError("Missing CI config file")]
    async with bench.watch():
        await bench.clock.advance(HOUR)
        stored = await bench.load(schedule)
        assert (stored.last_error, stored.last_pipeline_id) == ("Missing CI config file", None)
        assert await bench.count_pipelines() == 0
        await bench.clock.advance(HOUR)
        assert await bench.count_pipelines() == 1
        assert (await bench.load(schedule)).last_error is None


async def test_a_missing_ref_is_named_in_the_error(bench: Bench) -> None:
    schedule = await bench.add("@hourly", ref="gone")
    async with bench.watch():
        await bench.clock.advance(HOUR)
    assert "no branch or tag 'gone'" in ((await bench.load(schedule)).last_error or "")
    assert bench.starter.requests == []


async def test_a_schedule_with_an_unknown_time_zone_does_not_run(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    await bench.store.schedules.change_schedule(
        schedule.id, lambda row: replace(row, timezone="Mars", next_run_at=START)
    )
    async with bench.watch():
        await bench.clock.advance(DAY)
    stored = await bench.load(schedule)
    assert stored.next_run_at is None
    assert "Europe/Berlin" in (stored.last_error or "")


async def test_a_broken_schedule_does_not_stop_the_others(bench: Bench) -> None:
    broken = await bench.add("@hourly", next_run_at=None)
    fine = await bench.add("@hourly")
    bench.starter.errors_before = [ZeroDivisionError("a bug")]
    async with bench.watch():
        await bench.clock.advance(HOUR)
    assert "the log of the cell has the error" in ((await bench.load(broken)).last_error or "")
    assert (await bench.load(fine)).last_pipeline_id == 1


async def test_a_run_is_repeated_after_a_store_error(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starter.errors_before = [StoreError("disk full"), StoreError("disk full")]
    async with bench.watch():
        await bench.clock.advance(HOUR)
    assert len(bench.starter.requests) == 3
    assert (await bench.load(schedule)).last_pipeline_id == 1


async def test_a_crash_before_the_pipeline_is_stored_loses_no_run(bench: Bench) -> None:
    await bench.add("@hourly")
    bench.starter.errors_before = [ProcessKilledError()]
    with pytest.raises(BaseExceptionGroup):
        async with bench.watch():
            await bench.clock.advance(HOUR)
    assert await bench.count_pipelines() == 0
    async with bench.watch(bench.reopen()):
        await bench.clock.advance(MINUTE)
        assert await bench.count_pipelines() == 1


async def test_a_crash_after_the_pipeline_is_stored_starts_no_second_one(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starter.errors_after = [ProcessKilledError()]
    with pytest.raises(BaseExceptionGroup):
        async with bench.watch():
            await bench.clock.advance(HOUR)
    assert await bench.count_pipelines() == 1
    async with bench.watch(bench.reopen()):
        await bench.clock.advance(MINUTE)
        assert await bench.count_pipelines() == 1
    assert (await bench.load(schedule)).last_pipeline_id == 1


async def test_an_error_after_the_pipeline_is_stored_starts_no_second_one(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starter.errors_after = [ZeroDivisionError("a bug")]
    async with bench.watch():
        await bench.clock.advance(HOUR)
        await bench.clock.advance(MINUTE)
    assert await bench.count_pipelines() == 1
    assert (await bench.load(schedule)).last_error is None


async def test_a_manual_run_does_not_change_the_next_time(bench: Bench) -> None:
    schedule = await bench.add("@hourly", active=False)
    pipeline = await bench.schedules.run(schedule)
    assert await bench.load(schedule) == replace(schedule, last_pipeline_id=pipeline.id)


async def test_a_slow_schedule_does_not_delay_the_others(bench: Bench) -> None:
    slow = await bench.add("*/15 * * * *", description="slow")
    quick = await bench.add("*/15 * * * *", description="quick")
    bench.starter.slow["slow"] = asyncio.Event()
    async with bench.watch():
        await bench.clock.advance(8 * MINUTE)
        assert (await bench.load(quick)).last_pipeline_id is not None
        assert (await bench.load(slow)).last_pipeline_id is None
        bench.starter.slow["slow"].set()
        await settle()
        assert (await bench.load(slow)).last_pipeline_id is not None
