"""What is told of changes, in virtual time: the state as it is stored, once, and nothing while nobody watches."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.core.event_buffer import EventKind
from remuda.cell.errors import StoreError
from remuda.cell.events import GATHER_SECONDS, LINGER_SECONDS, LOOK_SECONDS, MOST_CHANGED, RUNNERS_SECONDS, Events
from remuda.lib.clock import settle
from remuda.model.job import JobId, JobState
from remuda.testing.builders import a_runner, a_spec
from remuda.testing.memory_cell import MemoryCell


@asynccontextmanager
async def telling(cell: MemoryCell) -> AsyncIterator[Events]:
    """Events while the block runs."""
    events, stop = Events(cell.store, cell.dispatch.memory.changed_jobs, cell.clock), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(events.watch(stop), name="events")
        await settle()
        yield events
        stop.set()


def events_after(events: Events, after: int) -> list[dict[str, Any]]:
    buffered = events.buffer.after(after, at_most=1000)
    assert buffered is not None
    return [{"kind": event.kind.value, **json.loads(event.body)} for event in buffered]


async def test_a_job_from_its_creation_to_its_end(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False) as watcher:
            family = await cell.push(a_spec("build", tags=("linux",)))
            await cell.clock.advance(GATHER_SECONDS)
            assert watcher.wake.is_set()
            assert [(event["kind"], event["status"]) for event in events_after(events, 0)] == [
                ("pipeline", "pending"),
                ("job", "pending"),
            ]
            at = events.buffer.last
            _, token = await cell.take()
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event["id"], event["status"]) for event in events_after(events, at)] == [
                ("job", family.jobs[0].id, "running")
            ]
            at = events.buffer.last
            await cell.put(token, "success")
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event["status"]) for event in events_after(events, at)] == [
                ("job", "success"),
                ("pipeline", "success"),
            ]


async def test_all_jobs_are_told_before_the_end_of_their_pipeline(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"), a_spec("later", stage="deploy", stage_index=2))
            await cell.clock.advance(GATHER_SECONDS)
            _, token = await cell.take()
            await cell.clock.advance(GATHER_SECONDS)
            at = events.buffer.last
            await cell.put(token, "failed")
            # As another process hears of it: of one job first, of the other one later.
            cell.dispatch.memory.changed_jobs.take()
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event.get("name"), event["status"]) for event in events_after(events, at)] == [
                ("job", "build", "failed"),
                ("job", "later", "skipped"),
                ("pipeline", None, "failed"),
            ]


async def test_nothing_is_noted_or_kept_while_nobody_watches(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        await cell.push(a_spec("build"))
        assert not cell.dispatch.memory.changed_jobs.enabled
        assert cell.dispatch.memory.changed_jobs.take() == ([], False)
        with events.subscribe(runners=False):
            await settle()
        await cell.push(a_spec("build"))
        await cell.clock.advance(1)
        at = events.buffer.last
        assert at
        await cell.clock.advance(LINGER_SECONDS + LOOK_SECONDS)
        assert not cell.dispatch.memory.changed_jobs.enabled
        assert events.buffer.after(at, at_most=1) is None


async def test_the_same_state_is_told_once(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            at = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(1)
            assert events_after(events, at) == []


async def test_a_hint_that_was_lost_is_made_up_for(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            at = events.buffer.last
            # As another process would do it, of which nothing is heard.
            await cell.store.jobs.change_job(family.jobs[0].id, lambda job: replace(job, state=JobState.SKIPPED))
            await cell.clock.advance(2 * LOOK_SECONDS)
            assert [event["status"] for event in events_after(events, at)] == ["skipped"]


@pytest.mark.parametrize("how_many", [0, MOST_CHANGED + 1])
async def test_what_may_have_been_missed_is_a_reset(cell: MemoryCell, how_many: int) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False) as watcher:
            await settle()
            at = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(*map(JobId, range(how_many)))
            await cell.clock.advance(GATHER_SECONDS)
            assert watcher.wake.is_set()
            assert events.buffer.after(at, at_most=1) is None


async def test_a_store_that_fails_is_a_reset(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False):
            await settle()
            at = events.buffer.last

            async def fails(job_ids: object) -> Any:
                raise StoreError("the disk is full")

            monkeypatch.setattr(cell.store.jobs, "load_jobs", fails)
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            assert events.buffer.after(at, at_most=1) is None
            monkeypatch.undo()
            await cell.clock.advance(60)
            at = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(1)
            assert events_after(events, at)


async def test_runners_come_change_and_go(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=True):
            await events.ready()
            at = events.buffer.last
            new = await cell.store.runners.add_runner(a_runner(tags=("arm",), token_hash="new"))
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.change_runner(new.id, lambda row: replace(row, paused=True))
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.remove_runner(new.id)
            await cell.clock.advance(RUNNERS_SECONDS)
            runner_events = events_after(events, at)
            assert [event.get("paused", False) for event in runner_events] == [False, True, True]
            assert [event["status"] for event in runner_events][-1] == "removed"
            assert {event["kind"] for event in runner_events} == {EventKind.RUNNER.value}


async def test_runners_are_not_read_for_those_who_do_not_want_them(cell: MemoryCell) -> None:
    async with telling(cell) as events:
        with events.subscribe(runners=False):
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.add_runner(a_runner(token_hash="new"))
            await cell.clock.advance(10 * RUNNERS_SECONDS)
            assert events_after(events, 0) == []
