"""When a manager's sign of life is written."""

import pytest

from remuda.cell.http.runner.managers import WRITE_EVERY_SECONDS, Managers
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.values import LEGACY, RunnerManager
from remuda.lib.clock import VirtualClock
from remuda.model.job import RunnerId
from remuda.testing.builders import a_job, a_runner
from remuda.wire.runner_api import RunnerInfo


async def test_what_changes_is_written_at_once_and_the_rest_now_and_then() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers = Managers(store, clock)
    info = RunnerInfo(version="17.9", features={"cache": True, "proxy": False})

    async def stored() -> tuple[str, tuple[str, ...], float]:
        manager = await store.runners.load_manager(runner.id, "s_1")
        assert manager
        return manager.runner_version, manager.features, manager.contacted_at

    began = clock.now()
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    assert await stored() == ("17.9", ("cache",), began)
    await clock.advance(WRITE_EVERY_SECONDS - 1)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await stored() == ("17.9", ("cache",), began)
    await managers.note_call(runner.id, "s_1", RunnerInfo(version="18.0"), "192.0.2.1")
    assert await stored() == ("18.0", (), clock.now())
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await stored() == ("18.0", (), clock.now()), "a call that says nothing takes nothing back"


async def test_a_manager_without_a_name() -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    await Managers(store, VirtualClock()).note_call(runner.id, None, None, "192.0.2.1")
    assert await store.runners.load_manager(runner.id, LEGACY)


async def test_a_process_that_does_not_know_the_manager_takes_nothing_back() -> None:
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


async def test_the_jobs_of_a_runner_that_was_removed_say_nothing_of_managers() -> None:
    store = MemoryStore()
    await Managers(store, VirtualClock()).note_job_call(a_job(runner_id=RunnerId(9)), RunnerInfo(), "192.0.2.1")
    await Managers(store, VirtualClock()).note_job_call(a_job(), RunnerInfo(), "192.0.2.1")
    assert await store.runners.list_all_managers() == []


@pytest.mark.parametrize(
    ("config", "capacity"),
    [(None, None), ({"gpus": ""}, None), ({"capacity": 3}, 3), ({"capacity": True}, None), ({"capacity": -1}, None)],
)
async def test_how_much_a_manager_can_run(config: dict[str, object] | None, capacity: int | None) -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    await Managers(store, VirtualClock()).note_call(runner.id, "s_1", RunnerInfo(config=config), "192.0.2.1")
    [manager] = await store.runners.list_all_managers()
    assert manager.capacity == capacity


async def test_a_runner_is_known_by_its_token_until_that_expires() -> None:
    clock = VirtualClock()
    managers = Managers(MemoryStore(), clock)
    runner = a_runner(token_hash="hash", token_expires_at=clock.now() + 10)
    assert managers.find_runner("hash") is None
    managers.remember_runner(runner)
    assert managers.find_runner("hash") == runner
    await clock.advance(10)
    assert managers.find_runner("hash") is None


async def test_the_manager_of_a_runner_that_is_gone_is_not_seen() -> None:
    managers = Managers(MemoryStore(), VirtualClock())
    assert not await managers.try_note_call(RunnerId(9), "s_1", RunnerInfo(), "192.0.2.1")


@pytest.mark.parametrize("system_id", ["s_1", "s" * 100])
async def test_a_manager_that_was_removed_is_written_at_its_next_call(system_id: str) -> None:
    store = MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers = Managers(store, VirtualClock())
    await managers.note_call(runner.id, system_id, RunnerInfo(), "192.0.2.1")
    assert await managers.remove(runner.id, system_id)
    assert await store.runners.list_all_managers() == []
    assert not await managers.remove(runner.id, system_id)
    await managers.note_call(runner.id, system_id, RunnerInfo(), "192.0.2.1")
    assert len(await store.runners.list_all_managers()) == 1


async def test_a_managers_load_is_noted_with_what_is_written_anyway() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.runners.add_runner(a_runner())
    managers, info = Managers(store, clock), RunnerInfo(version="1")

    async def load() -> tuple[int | None, int | None]:
        manager = await store.runners.load_manager(runner.id, "s_1")
        assert manager
        return manager.load_running, manager.load_free

    await managers.note_call(runner.id, "s_1", info, "192.0.2.1")
    assert await load() == (None, None)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 1, "free": 3})
    assert await load() == (1, 3), "that it says something is news"
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 2, "free": 2})
    assert await load() == (1, 3), "no write for that alone"
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": 4, "free": 0})
    assert await load() == (4, 0)
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", None, "192.0.2.1")
    assert await load() == (4, 0), "a call that says nothing takes nothing back"
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.note_call(runner.id, "s_1", info, "192.0.2.1", {"running": "many", "free": True})
    assert await load() == (None, None)
