"""What the parts of a manager do to each other: as little as possible."""

import asyncio
import sqlite3

import pytest
from tests.support.runners.manager_bench import ManagerBench

from remuda.lib.backoff import Backoff
from remuda.manager.core.record import JobRow, Record
from remuda.manager.jobs.journal import Journal
from remuda.manager.jobs.links import Links
from remuda.manager.polling import poller
from remuda.manager.process import supervision
from remuda.manager.process.control import ask_status
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


async def test_a_look_that_fails_does_not_end_the_manager(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()
    close_idle = Links.close_idle

    def fail_once(links: Links) -> None:
        if not looked.is_set():
            looked.set()
            raise RuntimeError("nobody foresaw this")
        close_idle(links)

    monkeypatch.setattr(supervision, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(Links, "close_idle", fail_once)
    async with bench.manager(environment):
        await looked.wait()
        job = await coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == "success"


async def test_a_job_that_comes_while_the_manager_drains_is_not_held(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write_config(extra='[runners.remuda]\nhold_failed = "30m"\n')
    add = Journal.add
    drain = asyncio.Event()

    async def drain_first(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        drain.set()
        while (await ask_status(bench.data)).state != "draining":
            pass
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", drain_first)
    async with bench.manager(environment) as events:
        job = await coordinator.enqueue("false")
        await drain.wait()
        events.drain.set()
        key = await environment.agent.job()
        assert environment.agent.jobs[key].request.hold_failed_seconds == 0
        await environment.agent.end(key, status="failure", reason="script_failure", exit_code=1)
        await coordinator.until_over(job)
    assert job.status == "failed"


@pytest.mark.parametrize(("is_remuda", "end"), [(True, "success"), (False, "failed")])
async def test_a_job_that_cannot_be_stored_is_given_again_by_a_cell_and_fails_elsewhere(
    bench: ManagerBench,
    coordinator: Coordinator,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    is_remuda: bool,
    end: str,
) -> None:
    coordinator.is_remuda = is_remuda
    add, refused = Journal.add, 0

    async def full_once(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise sqlite3.OperationalError("database or disk is full")
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", full_once)
    monkeypatch.setattr(poller, "_UNSTORED", Backoff(first_seconds=0.1, ceiling_seconds=1.0))
    async with bench.manager(environment):
        job = await coordinator.enqueue("true")
        if is_remuda:
            await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == end


async def test_a_job_that_two_ways_lead_to_is_found_once(
    bench: ManagerBench, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.manager(environment) as events:
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    (bench.data / "journal.sqlite").unlink()
    # The same machine by another name: of another runner's list, for instance.
    environment.machines["other"] = environment.machines["fake"]
    added: list[str] = []
    both, add = asyncio.Event(), Journal.add

    async def together(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        added.append(record.machine)
        if len(added) == 2:
            both.set()
        await both.wait()
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", together)
    async with bench.manager(environment):
        await both.wait()
        await environment.agent.end(key)
        await coordinator.until_over(job)
    assert environment.agent.closed == [key]
    assert job.status == "success"
