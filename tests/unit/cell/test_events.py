"""Events of changes in virtual time: every stored state is sent once, and only while there are subscribers."""

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
async def watch_events(cell: MemoryCell) -> AsyncIterator[Events]:
    """Run the watcher of changes while the block runs."""
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


async def test_events_of_a_job_from_creation_to_end(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False) as watcher:
            family = await cell.push(a_spec("build", tags=("linux",)))
            await cell.clock.advance(GATHER_SECONDS)
            assert watcher.wake.is_set()
            assert [(event["kind"], event["status"]) for event in events_after(events, 0)] == [
                ("pipeline", "pending"),
                ("job", "pending"),
            ]
            last = events.buffer.last
            _, token = await cell.take()
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event["id"], event["status"]) for event in events_after(events, last)] == [
                ("job", family.jobs[0].id, "running")
            ]
            last = events.buffer.last
            await cell.put(token, "success")
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event["status"]) for event in events_after(events, last)] == [
                ("job", "success"),
                ("pipeline", "success"),
            ]


async def test_events_of_all_jobs_come_before_the_end_of_their_pipeline(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"), a_spec("later", stage="deploy", stage_index=2))
            await cell.clock.advance(GATHER_SECONDS)
            _, token = await cell.take()
            await cell.clock.advance(GATHER_SECONDS)
            last = events.buffer.last
            await cell.put(token, "failed")
            # As another process is notified: of one job first, of the other one later.
            cell.dispatch.memory.changed_jobs.take()
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(GATHER_SECONDS)
            assert [(event["kind"], event.get("name"), event["status"]) for event in events_after(events, last)] == [
                ("job", "build", "failed"),
                ("job", "later", "skipped"),
                ("pipeline", None, "failed"),
            ]


async def test_nothing_is_noted_or_buffered_without_subscribers(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        await cell.push(a_spec("build"))
        assert not cell.dispatch.memory.changed_jobs.enabled
        assert cell.dispatch.memory.changed_jobs.take() == ([], False)
        with events.subscribe(runners=False):
            await settle()
        await cell.push(a_spec("build"))
        await cell.clock.advance(1)
        last = events.buffer.last
        assert last
        await cell.clock.advance(LINGER_SECONDS + LOOK_SECONDS)
        assert not cell.dispatch.memory.changed_jobs.enabled
        assert events.buffer.after(last, at_most=1) is None


async def test_the_same_state_is_sent_once(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            last = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(1)
            assert events_after(events, last) == []


async def test_a_lost_notification_is_corrected_by_the_regular_check(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            last = events.buffer.last
            # As another process whose notification is lost.
            await cell.store.jobs.change_job(family.jobs[0].id, lambda job: replace(job, state=JobState.SKIPPED))
            await cell.clock.advance(2 * LOOK_SECONDS)
            assert [event["status"] for event in events_after(events, last)] == ["skipped"]


async def test_regular_check_of_unfinished_jobs_is_no_reset(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            family = await cell.push(a_spec("build"), a_spec("test"))
            await cell.clock.advance(1)
            last = events.buffer.last
            monkeypatch.setattr("remuda.cell.events.MOST_CHANGED", 1)
            await cell.store.jobs.change_job(family.jobs[0].id, lambda job: replace(job, state=JobState.SKIPPED))
            await cell.clock.advance(2 * LOOK_SECONDS)
            assert [event["status"] for event in events_after(events, last)] == ["skipped"]


@pytest.mark.parametrize("count", [0, MOST_CHANGED + 1])
async def test_possibly_missed_changes_cause_a_reset(cell: MemoryCell, count: int) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False) as watcher:
            await settle()
            last = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(*map(JobId, range(count)))
            await cell.clock.advance(GATHER_SECONDS)
            assert watcher.wake.is_set()
            assert events.buffer.after(last, at_most=1) is None


async def test_a_store_error_causes_a_reset(cell: MemoryCell, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            await settle()
            last = events.buffer.last

            async def fail(job_ids: object) -> Any:
                raise StoreError("the disk is full")

            monkeypatch.setattr(cell.store.jobs, "load_jobs", fail)
            family = await cell.push(a_spec("build"))
            await cell.clock.advance(1)
            assert events.buffer.after(last, at_most=1) is None
            monkeypatch.undo()
            await cell.clock.advance(60)
            last = events.buffer.last
            cell.dispatch.memory.changed_jobs.note(family.jobs[0].id)
            await cell.clock.advance(1)
            assert events_after(events, last)


async def test_events_of_added_changed_and_removed_runners(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=True):
            await events.ready()
            last = events.buffer.last
            new = await cell.store.runners.add_runner(a_runner(tags=("arm",), token_hash="new"))
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.change_runner(new.id, lambda row: replace(row, paused=True))
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.remove_runner(new.id)
            await cell.clock.advance(RUNNERS_SECONDS)
            runner_events = events_after(events, last)
            assert [event.get("paused", False) for event in runner_events] == [False, True, True]
            assert [event["status"] for event in runner_events][-1] == "removed"
            assert {event["kind"] for event in runner_events} == {EventKind.RUNNER.value}


async def test_runners_are_not_read_for_subscribers_without_runners(cell: MemoryCell) -> None:
    async with watch_events(cell) as events:
        with events.subscribe(runners=False):
            await cell.clock.advance(RUNNERS_SECONDS)
            await cell.store.runners.add_runner(a_runner(token_hash="new"))
            await cell.clock.advance(10 * RUNNERS_SECONDS)
            assert events_after(events, 0) == []
