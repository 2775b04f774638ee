"""The scaling loop acts on plans: instances are created for jobs and removed after them, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.in_process import InProcess
from remuda.fleeting.port import ProviderInfo
from remuda.lib.clock import settle
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.testing.scalers import InlineWriter, Stable


async def test_an_instance_is_created_for_a_job_and_removed_after_it(stable: Stable) -> None:
    await stable.start()
    assert stable.scaler.capacity() == 0
    await stable.run(5)
    assert stable.scaler.capacity() == stable.cloud.max_size
    slots = await stable.acquire("job")
    assert slots["job"].instance == "i-1"
    assert stable.instances("ready").keys() == {"i-1"}
    stable.release("job")
    await stable.run(400)
    assert stable.instances() == {}
    assert stable.cloud.list_instances() == {}
    assert stable.mechanic.forgotten == ["i-1"]


async def test_the_version_of_the_running_plugin_is_shown(stable: Stable) -> None:
    await stable.start()
    (watch,) = stable.scaler._watches.values()
    assert isinstance(watch.plugin, InProcess)
    watch.plugin.info = ProviderInfo(id="cloud", max_size=4, version="0.3.0")
    await stable.run(120)
    assert stable.scaler.status().groups[0].plugin == "cloud 0.3.0"


async def test_a_job_waits_on_if_its_instance_is_lost_before_its_slot_is_stored(
    stable: Stable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is given but not stored yet when its instance is lost: the job waits for another instance."""
    stable.policy(idle_count=1, idle_seconds=600.0)
    await stable.start()
    await stable.run(60)
    monkeypatch.setattr(InlineWriter, "broken", "disk full")
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await settle(50)
    stable.cloud.lose("i-1")
    await stable.run(70)
    monkeypatch.setattr(InlineWriter, "broken", "")
    await stable.run(120)
    assert (await job).instance != "i-1"
    assert stable.lost == []


async def test_a_job_whose_slot_was_lost_keeps_its_turn_its_caches_and_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stable = Stable(tmp_path, max_instances=2)
    stable.setup = replace(stable.setup, acquire_seconds=600.0)
    stable.policy(idle_count=2, idle_seconds=3600.0)
    await stable.start()
    slots = await stable.acquire("warming", "busy")
    stable.release("warming", warmed=["cache"])
    await stable.run(5)
    monkeypatch.setattr(InlineWriter, "broken", "disk full")
    first = asyncio.create_task(stable.scaler.acquire("first", caches=["cache"]), name="first")
    await stable.run(5)
    second = asyncio.create_task(stable.scaler.acquire("second"), name="second")
    stable.cloud.lose(slots["warming"].instance)
    await stable.run(70)
    (first_waiter, second_waiter) = stable.scaler._roster.slots.waiters
    assert (first_waiter.holder, second_waiter.holder) == ("first", "second")
    assert first_waiter.caches == {"cache"}
    assert first_waiter.since < second_waiter.since
    monkeypatch.setattr(InlineWriter, "broken", "")
    await stable.run(120)
    assert first.done()
    assert not second.done()
    stable.release("busy")
    await second
    await stable.close()


async def test_a_servers_demand_is_planned_for_and_not_counted_twice(stable: Stable) -> None:
    ready = [3]
    stable.demand = lambda: Demand(keys=(KeyDemand(key="linux", ready=ready[0]),))
    stable.setup = replace(stable.setup, demand_seconds=30.0)
    await stable.start()
    await stable.run(40)
    assert stable.cloud.made == 3
    ready[0] = 0  # the server is asked again only later
    jobs = [asyncio.create_task(stable.scaler.acquire(f"{n}", key="linux")) for n in range(3)]
    await stable.run(60)
    assert all(job.done() for job in jobs)
    assert stable.cloud.made == 3


async def test_an_error_of_the_demand_call_is_reported_and_jobs_are_still_served(stable: Stable) -> None:

    def fail() -> Demand:
        raise OSError("no route to the server")

    stable.demand = fail
    await stable.start()
    await stable.acquire("job")
    assert "no route to the server" in stable.scaler.status().demand_error


async def test_a_job_goes_where_its_caches_are(stable: Stable) -> None:
    stable.policy(idle_count=3, idle_seconds=3600.0)
    await stable.start()
    slots = await stable.acquire("a", "b")
    stable.release("a", warmed=["cache"])
    stable.release("b")
    await stable.run(10)
    assert (await stable.acquire("c", caches=["cache"]))["c"].instance == slots["a"].instance


async def test_connect_info_is_fetched_again_after_failures(stable: Stable) -> None:
    await stable.start()
    name = (await stable.acquire("job"))["job"].instance
    calls = stable.cloud.calls.count("connect_info")
    await stable.scaler.connect_info(name)
    assert stable.cloud.calls.count("connect_info") == calls
    stable.scaler.report(name, is_well=False)
    await stable.scaler.connect_info(name)
    assert stable.cloud.calls.count("connect_info") == calls + 1


async def test_cached_connect_info_is_used_while_the_provider_does_not_answer(stable: Stable) -> None:
    await stable.start()
    name = (await stable.acquire("job"))["job"].instance
    cached = await stable.scaler.connect_info(name)
    stable.scaler.report(name, is_well=False)
    stable.cloud.broken["connect_info"] = TemporaryError("the provider does not answer")
    assert await stable.scaler.connect_info(name) == cached


async def test_connect_info_is_not_fetched_from_a_plugin_that_is_being_started(stable: Stable) -> None:
    await stable.start()
    name = (await stable.acquire("job"))["job"].instance
    await stable.kill()
    stable.cloud.hung.add("init")
    stable.cloud.calls.clear()
    scaler = await stable.start(is_recovered=False)
    request = asyncio.create_task(scaler.connect_info(name), name="connect")
    await stable.run(100)
    assert (request.done(), stable.cloud.calls) == (False, ["init"])
    # The start has failed and is repeated: now the call can fail with a reason.
    stable.cloud.hung.clear()
    await stable.run(60)
    with pytest.raises(PermanentError):
        await request
    assert (await scaler.connect_info(name)).internal_addr
