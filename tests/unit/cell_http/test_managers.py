"""When a manager's sign of life is written."""

from remuda.cell.adapters.memory import MemoryStore
from remuda.cell.http.managers import LEGACY, WRITE_EVERY_SECONDS, Managers
from remuda.lib.clock import VirtualClock
from remuda.testing.builders import a_runner
from remuda.wire.runner_api import RunnerInfo


async def test_what_changes_is_written_at_once_and_the_rest_now_and_then() -> None:
    clock, store = VirtualClock(), MemoryStore()
    runner = await store.add_runner(a_runner())
    managers = Managers(store, clock)
    info = RunnerInfo(version="17.9", features={"cache": True, "proxy": False})

    async def stored() -> tuple[str, tuple[str, ...], float]:
        manager = await store.manager(runner.id, "s_1")
        assert manager
        return manager.runner_version, manager.features, manager.contacted_at

    began = clock.now()
    await managers.seen(runner, "s_1", info, "192.0.2.1")
    assert await stored() == ("17.9", ("cache",), began)
    await clock.advance(WRITE_EVERY_SECONDS - 1)
    await managers.seen(runner, "s_1", info, "192.0.2.1")
    await managers.seen(runner, "s_1", None, "192.0.2.1")
    assert await stored() == ("17.9", ("cache",), began)
    await managers.seen(runner, "s_1", RunnerInfo(version="18.0"), "192.0.2.1")
    assert await stored() == ("18.0", (), clock.now())
    await clock.advance(WRITE_EVERY_SECONDS)
    await managers.seen(runner, "s_1", None, "192.0.2.1")
    assert await stored() == ("18.0", (), clock.now()), "a call that says nothing takes nothing back"


async def test_a_manager_without_a_name() -> None:
    store = MemoryStore()
    runner = await store.add_runner(a_runner())
    await Managers(store, VirtualClock()).seen(runner, None, None, "192.0.2.1")
    assert await store.manager(runner.id, LEGACY)
