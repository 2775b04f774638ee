"""Faults around the scaling loop cost no slot, no instance and no state."""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from remuda.fleeting import InProcess, Settings, TemporaryError
from remuda.lib.clock import VirtualClock, settle
from remuda.taskscaler.core.values import Cause
from remuda.taskscaler.fleet.members import MISSES, Member
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.setup import NoMetrics
from remuda.taskscaler.loop import state
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.state import StateError, StateFile, StateWriter, read_state, state_path
from remuda.taskscaler.loop.sweep import GRACE_SECONDS, sweep
from remuda.testing.scalers import CloudGroup, InlineWriter, Stable

T = TypeVar("T")


async def test_lost_slot_is_not_replaced_on_a_removed_instance(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
    stable.policy(idle_count=2, idle_seconds=600.0)
    await stable.start()
    await stable.run(60)
    assert stable.instances("ready").keys() == {"i-1", "i-2"}
    monkeypatch.setattr(InlineWriter, "broken", "disk full")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await settle(50)
    (lost_name,) = (instance.name for instance in stable.instances().values() if instance.holders)
    await stable.run(20)
    # Both changes come before the next plan: the job's instance is lost, and the other one is surplus.
    stable.policy(idle_count=0, idle_seconds=1.0)
    stable.cloud.lose(lost_name)
    roster = stable.scaler._roster
    roster.members[lost_name].missed = MISSES
    roster.refresh(lost_name, stable.clock.now())
    await stable.run(1, step=0.25)
    (other,) = stable.instances().values()
    assert (other.state, list(other.holders)) == ("deleting", [])
    monkeypatch.setattr(InlineWriter, "broken", "")
    await stable.run(120)
    assert (await job).instance == "i-3"
    assert stable.lost == []


async def test_failures_of_connect_info_remove_no_instance(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
    stable.policy(idle_count=2, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)

    async def check(_instance: str) -> None:
        raise TemporaryError("ConnectInfo: too many requests")

    monkeypatch.setattr(stable.mechanic, "check", check)
    await stable.run(300)
    assert stable.instances("ready").keys() == {"i-1", "i-2"}
    assert "decrease" not in stable.cloud.calls


async def _create_state_file(folder: Path) -> Path:
    """Create a state file with one instance. Its scaler has ended."""
    stable = Stable(folder)
    await stable.start()
    await stable.acquire("job")
    await stable.close()
    path = state_path(folder, stable.setup.name)
    assert read_state(path).instances
    return path


async def test_a_state_that_is_locked_is_not_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await _create_state_file(tmp_path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    monkeypatch.setattr(state.sqlite3, "connect", partial(sqlite3.connect, timeout=0.0))  # type: ignore[attr-defined]
    with pytest.raises(StateError, match="locked"):
        StateFile(path, writer=InlineWriter)
    with pytest.raises(StateError, match="locked"):
        read_state(path)
    monkeypatch.undo()
    other.execute("rollback")
    other.close()
    assert read_state(path).instances
    assert not path.with_name(path.name + ".broken").exists()


async def test_a_state_is_opened_without_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk does not prevent reading the state."""
    path = await _create_state_file(tmp_path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    monkeypatch.setattr(state.sqlite3, "connect", partial(sqlite3.connect, timeout=0.0))  # type: ignore[attr-defined]
    file = StateFile(path, writer=InlineWriter)
    assert file.read().instances
    file.close()
    other.close()


async def test_sweep_with_unreadable_state_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await _create_state_file(tmp_path)
    stable = Stable(tmp_path)
    stable.cloud.make(1, stable.setup.owner)
    stable.cloud.shows = False
    plugin = InProcess(CloudGroup(stable.cloud))
    await plugin.init({}, Settings(owner=stable.setup.owner))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    monkeypatch.setattr(state.sqlite3, "connect", partial(sqlite3.connect, timeout=0.0))  # type: ignore[attr-defined]
    await stable.clock.advance(2 * GRACE_SECONDS)
    result = await sweep(stable.setup, {"": plugin}, list, folder=tmp_path, clock=stable.clock, remove=True)
    other.close()
    assert (result.found, result.removed) == ((), ())
    assert "locked" in result.errors[0]


def test_every_invalid_state_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    for text in ("one", "two"):
        path.write_text(text * 500)
        StateFile(path, writer=InlineWriter).close()
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    contents = [file.read_text()[:3] for file in sorted(tmp_path.glob("fleet.db.broken*"))]
    assert contents == ["one", "two"]


async def test_a_pending_request_is_completed_after_the_scaler_is_started_again(stable: Stable) -> None:
    await stable.start()
    stable.cloud.hung.add("increase")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(10)
    assert stable.cloud.calls.count("increase") == 1
    stable.cloud.hung.clear()
    await stable.rerun()
    await stable.run(60)
    assert job.done()
    assert stable.cloud.made == 1


async def test_restarted_scaler_prepares_and_checks_instances(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
    await stable.start()
    stable.mechanic.hung.add("i-1")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(60)
    assert stable.mechanic.at_once == 1
    stable.mechanic.hung.clear()
    await stable.rerun()
    await stable.run(30)
    assert job.done()

    checked = [0]

    async def check(_instance: str) -> None:
        checked[0] += 1
        if checked[0] == 1:
            await asyncio.Event().wait()

    monkeypatch.setattr(stable.mechanic, "check", check)
    while not checked[0]:
        await stable.run(5)
    await stable.rerun()
    await stable.run(stable.setup.heartbeat_seconds)
    assert checked[0] > 1


async def test_work_that_is_cancelled_is_a_failure_and_does_not_cancel_the_caller() -> None:
    task = asyncio.current_task()
    assert task is not None

    async def work() -> None:
        raise asyncio.CancelledError

    with pytest.raises(TemporaryError, match="Update"):
        await within(VirtualClock(), 5.0, work(), what="Update")
    assert not task.cancelling()


async def test_a_group_is_still_watched_after_a_call_of_its_plugin_was_cancelled(stable: Stable) -> None:
    await stable.start()
    stable.cloud.broken["update"] = asyncio.CancelledError()  # type: ignore[assignment]
    await stable.run(60)
    stable.cloud.broken.clear()
    await stable.acquire("job")


async def test_a_write_waits_for_a_write_in_progress(tmp_path: Path) -> None:
    clock, stable = VirtualClock(), Stable(tmp_path)
    roster = Roster(stable.setup, NoMetrics())
    path = state_path(tmp_path, "fleet")

    class Slow(InlineWriter):
        async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
            await settle(20)
            return await super().run(operation)

    state_writer = StateWriter(StateFile(path, writer=Slow), roster, clock)
    roster.add(Member(id="i-1", group="", cause=Cause.REQUESTED, created_at=1.0, begun_at=1.0), 1.0)
    first = asyncio.create_task(state_writer.write(), name="first")
    await settle(1)
    await state_writer.write()
    assert [instance.id for instance in read_state(path).instances] == ["i-1"]
    await first


async def test_an_unanswered_request_does_not_delay_the_end_of_a_fleet(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    stable.setup = replace(stable.setup, delete_on_shutdown=True)
    await stable.start()
    stable.cloud.hung.add("increase")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(10)
    began = stable.clock.now()
    await stable.close()
    assert stable.clock.now() - began < stable.setup.shutdown_deletion_seconds
    assert "shutdown" in stable.cloud.calls
    with pytest.raises(asyncio.CancelledError):
        await job


async def test_hung_cleanup_of_instances_delays_the_end_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stable = Stable(tmp_path)
    stable.setup = replace(stable.setup, delete_on_shutdown=True)
    stable.policy(idle_count=5, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    assert len(stable.instances("ready")) == 5

    async def forget(_instance: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stable.mechanic, "forget", forget)
    began = stable.clock.now()
    await stable.close()
    assert stable.clock.now() - began < stable.setup.shutdown_seconds + 45.0
