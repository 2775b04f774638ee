"""The schedules at work in virtual time, with a store in memory and somebody who stores what they ask for."""

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
"""15:07:20 UTC."""


class DeathError(BaseException):
    """Ends everything, as the end of the process does."""


class Refs:
    """A repository with one branch."""

    async def commit_of(self, repo: str, ref: str) -> str | None:
        return SHA if ref == "refs/heads/main" else None


class Starting:
    """Stores each pipeline that is asked for, unless the test says otherwise."""

    def __init__(self, store: MemoryStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.before: list[BaseException] = []
        """Raised, one a call, before anything is stored."""
        self.after: list[BaseException] = []
        """Raised, one a call, when everything is stored."""
        self.slow: dict[str, asyncio.Event] = {}
        """What a pipeline waits for, by the description of its schedule."""
        self.requests: list[PipelineRequest] = []

    async def start(self, request: PipelineRequest) -> Pipeline:
        self.requests.append(request)
        await asyncio.sleep(0)
        if request.schedule is not None and request.schedule.description in self.slow:
            await self.slow[request.schedule.description].wait()
        if self.before:
            raise self.before.pop()
        family = await self._store.pipelines.add_pipeline(
            a_pipeline(project_id=request.project.id, source=request.source),
            new_jobs(a_spec()),
            now=self._clock.now(),
            schedule=request.schedule,
        )
        if self.after:
            raise self.after.pop()
        return family.pipeline


class Bench:
    """A cell's schedules."""

    def __init__(self, store: MemoryStore, project: Project) -> None:
        self.clock = VirtualClock(START)
        self.store = store
        self.project = project
        self.starting = Starting(store, self.clock)
        self.schedules = self.reopened()

    def reopened(self) -> Schedules:
        """As after a start of the process."""
        return Schedules(store=self.store, repos=Refs(), starter=self.starting, clock=self.clock)

    async def add(self, cron: str, **changes: Any) -> Schedule:
        now = self.clock.now()
        values: dict[str, Any] = {"id": 0, "project_id": self.project.id, "description": cron, "ref": "main"}
        schedule = Schedule(**(values | {"cron": cron, "created_at": now, "updated_at": now} | changes))
        return await self.store.schedules.add_schedule(with_next_time(schedule, now))

    async def load(self, schedule: Schedule) -> Schedule:
        row = await self.store.schedules.load_schedule(schedule.id)
        assert row is not None
        return row

    async def pipelines(self) -> int:
        return (await self.store.pipelines.list_pipelines(self.project.id, Page()))[1]

    @asynccontextmanager
    async def watching(self, schedules: Schedules | None = None) -> AsyncIterator[None]:
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
    async with bench.watching():
        await bench.clock.advance(7 * MINUTE)
        assert await bench.pipelines() == 0
        await bench.clock.advance(MINUTE)
        assert await bench.pipelines() == 1
        await bench.clock.advance(HOUR)
        assert await bench.pipelines() == 5
    request = bench.starting.requests[0]
    assert (request.source, request.ref, request.sha) == ("schedule", "refs/heads/main", SHA)
    assert (request.variables, request.file_variables) == ({"COLOUR": "red"}, frozenset({"COLOUR"}))
    assert request.predefined == {"CI_PIPELINE_SCHEDULE_DESCRIPTION": "*/15 * * * *"}
    assert (await bench.load(schedule)).last_pipeline_id == 5


async def test_a_schedule_ends_with_its_project(bench: Bench) -> None:
    schedule = await bench.add("* * * * *")
    now = bench.clock.now()
    await bench.store.projects.change_project(bench.project.id, lambda row: replace(row, removed_at=now))
    async with bench.watching():
        await bench.clock.advance(HOUR)
    assert bench.starting.requests == []
    assert await bench.store.schedules.load_schedule(schedule.id) is None


async def test_many_run_each_at_its_own_time(bench: Bench) -> None:
    every_minute = await bench.add("* * * * *")
    hourly = await bench.add("@hourly")
    resting = await bench.add("* * * * *", active=False)
    async with bench.watching():
        await bench.clock.advance(HOUR)
    assert await bench.pipelines() == 61
    assert (await bench.load(every_minute)).next_run_at == START - 20 + HOUR + MINUTE
    assert (await bench.load(hourly)).last_pipeline_id
    assert (await bench.load(resting)).last_pipeline_id is None


async def test_a_schedule_that_is_made_or_changed_is_seen_at_once(bench: Bench) -> None:
    async with bench.watching():
        await bench.clock.advance(MINUTE)
        schedule = await bench.add("* * * * *")
        bench.schedules.look_again()
        await settle()
        assert await bench.pipelines() == 0
        # Less than the pause between two looks that nobody asked for.
        await bench.clock.advance(40)
        assert await bench.pipelines() == 1
        await bench.store.schedules.change_schedule(
            schedule.id, lambda row: replace(row, next_run_at=bench.clock.now())
        )
        bench.schedules.look_again()
        await settle()
        assert await bench.pipelines() == 2


async def test_runs_missed_while_the_cell_was_away_are_made_up_for_by_one(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    await bench.clock.advance(3 * DAY)
    async with bench.watching():
        assert await bench.pipelines() == 1
        await bench.clock.advance(MINUTE)
        assert await bench.pipelines() == 1
        next_at = (await bench.load(schedule)).next_run_at
        assert next_at is not None
        assert 0 < next_at - bench.clock.now() <= HOUR


async def test_a_run_that_starts_nothing_says_why_and_comes_again(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starting.before = [InvalidError("Missing CI config file")]
    async with bench.watching():
        await bench.clock.advance(HOUR)
        stored = await bench.load(schedule)
        assert (stored.last_error, stored.last_pipeline_id) == ("Missing CI config file", None)
        assert await bench.pipelines() == 0
        await bench.clock.advance(HOUR)
        assert await bench.pipelines() == 1
        assert (await bench.load(schedule)).last_error is None


async def test_a_ref_that_is_gone_is_named(bench: Bench) -> None:
    schedule = await bench.add("@hourly", ref="gone")
    async with bench.watching():
        await bench.clock.advance(HOUR)
    assert "no branch or tag 'gone'" in ((await bench.load(schedule)).last_error or "")
    assert bench.starting.requests == []


async def test_a_zone_that_is_gone_rests_until_it_is_given_another(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    await bench.store.schedules.change_schedule(
        schedule.id, lambda row: replace(row, timezone="Mars", next_run_at=START)
    )
    async with bench.watching():
        await bench.clock.advance(DAY)
    stored = await bench.load(schedule)
    assert stored.next_run_at is None
    assert "Europe/Berlin" in (stored.last_error or "")


async def test_one_that_cannot_be_run_does_not_keep_the_others(bench: Bench) -> None:
    broken = await bench.add("@hourly", next_run_at=None)
    fine = await bench.add("@hourly")
    bench.starting.before = [ZeroDivisionError("a fault of ours")]
    async with bench.watching():
        await bench.clock.advance(HOUR)
    assert "its log says why" in ((await bench.load(broken)).last_error or "")
    assert (await bench.load(fine)).last_pipeline_id == 1


async def test_trouble_with_the_store_is_waited_for(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starting.before = [StoreError("disk full"), StoreError("disk full")]
    async with bench.watching():
        await bench.clock.advance(HOUR)
    assert len(bench.starting.requests) == 3
    assert (await bench.load(schedule)).last_pipeline_id == 1


async def test_a_death_before_it_is_stored_loses_nothing(bench: Bench) -> None:
    await bench.add("@hourly")
    bench.starting.before = [DeathError()]
    with pytest.raises(BaseExceptionGroup):
        async with bench.watching():
            await bench.clock.advance(HOUR)
    assert await bench.pipelines() == 0
    async with bench.watching(bench.reopened()):
        await bench.clock.advance(MINUTE)
        assert await bench.pipelines() == 1


async def test_a_death_after_it_is_stored_starts_nothing_twice(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starting.after = [DeathError()]
    with pytest.raises(BaseExceptionGroup):
        async with bench.watching():
            await bench.clock.advance(HOUR)
    assert await bench.pipelines() == 1
    async with bench.watching(bench.reopened()):
        await bench.clock.advance(MINUTE)
        assert await bench.pipelines() == 1
    assert (await bench.load(schedule)).last_pipeline_id == 1


async def test_a_fault_after_it_is_stored_starts_nothing_twice(bench: Bench) -> None:
    schedule = await bench.add("@hourly")
    bench.starting.after = [ZeroDivisionError("a fault of ours")]
    async with bench.watching():
        await bench.clock.advance(HOUR)
        await bench.clock.advance(MINUTE)
    assert await bench.pipelines() == 1
    assert (await bench.load(schedule)).last_error is None


async def test_a_run_by_hand_leaves_the_next_time_alone(bench: Bench) -> None:
    schedule = await bench.add("@hourly", active=False)
    pipeline = await bench.schedules.run(schedule)
    assert await bench.load(schedule) == replace(schedule, last_pipeline_id=pipeline.id)


async def test_one_that_takes_long_holds_up_no_other(bench: Bench) -> None:
    slow = await bench.add("*/15 * * * *", description="slow")
    quick = await bench.add("*/15 * * * *", description="quick")
    bench.starting.slow["slow"] = asyncio.Event()
    async with bench.watching():
        await bench.clock.advance(8 * MINUTE)
        assert (await bench.load(quick)).last_pipeline_id is not None
        assert (await bench.load(slow)).last_pipeline_id is None
        bench.starting.slow["slow"].set()
        await settle()
        assert (await bench.load(slow)).last_pipeline_id is not None
