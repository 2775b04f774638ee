"""Runner managers: when a contact is written to the store, and which fields are kept."""

import pytest

from remuda.cell.http.runner.managers import WRITE_EVERY_SECONDS, Managers
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.values import LEGACY, RunnerManager
from remuda.lib.clock import VirtualClock
from remuda.model.job import RunnerId
from remuda.testing.builders import a_job, a_runner
from remuda.wire.runner_api import RunnerInfo


async def test_changes_are_written_at_once_and_contact_times_at_intervals() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers = Managers(store, clock)
    info = RunnerInfo(version="17.9", features={"cache": True, "proxy": False})

    async def load_stored() -> tuple[str, tuple[str, ...], float]:
        manager = await store.runners.load_manager(runner.id, "s_1")
        assert manager
        return manager.runner_version, manager.features, manager.contacted_at

    start = clock.now()
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    assert await load_stored() == ("17.9", ("cache",), start)
    await clock.advance(WRITE_EVERY_SECONDS - 1)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await load_stored() == ("17.9", ("cache",), start)
    await managers.note_call(runner.id, "s_1", RunnerInfo(version="18.0"), "192.0.2.1")
    assert await load_stored() == ("18.0", (), clock.now())
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await load_stored() == ("18.0", (), clock.now()), "a call without info does not reset fields"


async def test_a_manager_without_a_system_id() -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    await Managers(store, VirtualClock()).note_call(runner.id, None, None, "192.0.2.1")
    assert await store.runners.load_manager(runner.id, LEGACY)


async def test_a_process_that_does_not_know_the_manager_resets_no_fields() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    info = RunnerInfo(version="18.0", features={"cancel_gracefully": True}, config={"capacity": 4})
    await Managers(store, clock).note_call(runner.id, "s_1", info, "192.0.2.1")
    await clock.advance(WRITE_EVERY_SECONDS)
    await Managers(store, clock).note_job_call(a_job(runner_id=runner.id, system_id="s_1"), None, "192.0.2.1")
    manager = await store.runners.load_manager(runner.id, "s_1")
    assert manager == RunnerManager(
        runner_id=runner.id,
        system_id="s_1",
        contacted_at=clock.now(),
        runner_version="18.0",
        features=("cancel_gracefully",),
        ip_address="192.0.2.1",
        capacity=4,
    )


async def test_calls_of_jobs_of_a_removed_runner_store_no_manager() -> None:
    store = MemoryStore()
    await Managers(store, VirtualClock()).note_job_call(a_job(runner_id=RunnerId(9)), RunnerInfo(), "192.0.2.1")
    await Managers(store, VirtualClock()).note_job_call(a_job(), RunnerInfo(), "192.0.2.1")
    assert await store.runners.list_all_managers() == []


@pytest.mark.parametrize(
    ("config", "capacity"),
    [(None, None), ({"gpus": ""}, None), ({"capacity": 3}, 3), ({"capacity": True}, None), ({"capacity": -1}, None)],
)
async def test_capacity_of_a_manager(config: dict[str, object] | None, capacity: int | None) -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    await Managers(store, VirtualClock()).note_call(runner.id, "s_1", RunnerInfo(config=config), "192.0.2.1")
    [manager] = await store.runners.list_all_managers()
    assert manager.capacity == capacity


async def test_a_runner_is_cached_by_its_token_until_the_token_expires() -> None:
    clock = VirtualClock()
    managers = Managers(MemoryStore(), clock)
    runner = a_runner(token_hash="hash", token_expires_at=clock.now() + 10)
    assert managers.find_runner("hash") is None
    managers.remember_runner(runner)
    assert managers.find_runner("hash") == runner
    await clock.advance(10)
    assert managers.find_runner("hash") is None


async def test_a_call_of_a_missing_runner_is_not_noted() -> None:
    managers = Managers(MemoryStore(), VirtualClock())
    assert not await managers.try_note_call(RunnerId(9), "s_1", RunnerInfo(), "192.0.2.1")


@pytest.mark.parametrize("system_id", ["s_1", "s" * 100])
async def test_a_removed_manager_is_written_at_its_next_call(system_id: str) -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers = Managers(store, VirtualClock())
    await managers.note_call(runner.id, system_id, RunnerInfo(), "192.0.2.1")
    assert await managers.remove(runner.id, system_id)
    assert await store.runners.list_all_managers() == []
    assert not await managers.remove(runner.id, system_id)
    await managers.note_call(runner.id, system_id, RunnerInfo(), "192.0.2.1")
    assert len(await store.runners.list_all_managers()) == 1


async def test_the_load_of_a_manager_causes_no_write_of_its_own() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers, info = Managers(store, clock), RunnerInfo(version="1")

    async def load_stored() -> tuple[int | None, int | None]:
        manager = await store.runners.load_manager(runner.id, "s_1")
        assert manager
        return manager.load_running, manager.load_free

    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    assert await load_stored() == (None, None)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 1, "free": 3})
    assert await load_stored() == (1, 3), "the first reported load is written at once"
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 2, "free": 2})
    assert await load_stored() == (1, 3), "a changed load alone is not written"
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 4, "free": 0})
    assert await load_stored() == (4, 0)
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await load_stored() == (4, 0), "a call without info does not reset fields"
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": "many", "free": True})
    assert await load_stored() == (None, None)
