"""Independence of the manager's parts: errors of one part, a full disk or a drain do not break the others."""

import asyncio
import sqlite3

import pytest
from tests.support.runners.manager_harness import ManagerHarness

from remuda.lib.backoff import Backoff
from remuda.manager.core.record import JobRow, Record
from remuda.manager.jobs.journal import Journal
from remuda.manager.jobs.links import Links
from remuda.manager.polling import poller
from remuda.manager.process import supervision
from remuda.manager.process.control import ask_status
from remuda.testing.coordinator import Coordinator
from remuda.testing.environment import FakeEnvironment


async def test_an_error_in_a_periodic_check_does_not_end_the_manager(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = asyncio.Event()
    close_idle = Links.close_idle

    def fail_once(links: Links) -> None:
        if not checked.is_set():
            checked.set()
            raise RuntimeError("unexpected error")
        close_idle(links)

    monkeypatch.setattr(supervision, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(Links, "close_idle", fail_once)
    async with harness.manager(environment):
        await checked.wait()
        job = await coordinator.enqueue("true")
        await environment.agent.end(await environment.agent.job())
        await coordinator.until_over(job)
    assert job.status == "success"


async def test_a_job_that_arrives_during_a_drain_gets_no_hold(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.write_config(extra='[runners.remuda]\nhold_failed = "30m"\n')
    add = Journal.add
    drain = asyncio.Event()

    async def drain_first(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        drain.set()
        while (await ask_status(harness.data)).state != "draining":
            pass
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", drain_first)
    async with harness.manager(environment) as events:
        job = await coordinator.enqueue("false")
        await drain.wait()
        events.drain.set()
        key = await environment.agent.job()
        assert environment.agent.jobs[key].request.hold_failed_seconds == 0
        await environment.agent.end(key, status="failure", reason="script_failure", exit_code=1)
        await coordinator.until_over(job)
    assert job.status == "failed"


@pytest.mark.parametrize(("is_remuda", "expected"), [(True, "success"), (False, "failed")])
async def test_a_job_that_cannot_be_stored_is_requested_again_from_a_cell_and_fails_elsewhere(
    harness: ManagerHarness,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    is_remuda: bool,
    expected: str,
) -> None:
    harness.coordinator.is_remuda = is_remuda
    add, attempts = Journal.add, 0

    async def full_once(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise sqlite3.OperationalError("database or disk is full")
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", full_once)
    monkeypatch.setattr(poller, "_UNSTORED", Backoff(first_seconds=0.1, ceiling_seconds=1.0))
    async with harness.manager(environment):
        job = await harness.coordinator.enqueue("true")
        if is_remuda:
            await environment.agent.end(await environment.agent.job())
        await harness.coordinator.until_over(job)
    assert job.status == expected


async def test_a_job_on_a_machine_with_two_names_is_recovered_once(
    harness: ManagerHarness, coordinator: Coordinator, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.manager(environment) as events:
        job = await coordinator.enqueue("true")
        key = await environment.agent.job()
        events.stop.set()
    (harness.data / "journal.sqlite").unlink()
    # The same machine with another name, for example in the list of another runner.
    environment.machines["other"] = environment.machines["fake"]
    added: list[str] = []
    both, add = asyncio.Event(), Journal.add

    async def add_together(journal: Journal, row: JobRow, record: Record, settings: bytes = b"") -> None:
        added.append(record.machine)
        if len(added) == 2:
            both.set()
        await both.wait()
        await add(journal, row, record, settings)

    monkeypatch.setattr(Journal, "add", add_together)
    async with harness.manager(environment):
        await both.wait()
        await environment.agent.end(key)
        await coordinator.until_over(job)
    assert environment.agent.closed == [key]
    assert job.status == "success"
