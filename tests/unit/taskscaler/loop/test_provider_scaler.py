"""A fleet whose plugin does the scaling: it gets the demand, is asked for instances, and is watched for losses."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from remuda.fleeting import (
    ConnectInfo,
    InProcess,
    InstanceState,
    PermanentError,
    RoomAtProvider,
    TemporaryError,
    Wishes,
)
from remuda.lib.clock import VirtualClock
from remuda.taskscaler.core.values import Demand, KeyDemand, Soon
from remuda.taskscaler.fleet.setup import AcquireTimeoutError, FleetSetup, GroupSetup, ScalerHost
from remuda.taskscaler.loop.provider_scaler import ProvidedScaler
from remuda.testing.instance_groups import TableGroup
from remuda.testing.logs import capture_logs
from remuda.testing.providers import TableProvider


class Mechanic:
    """Records the instances that it is to forget."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        raise AssertionError("the machines of a provider are ready when it hands them out")

    async def check(self, instance: str) -> None:
        raise AssertionError("a provider checks its machines itself")

    async def forget(self, instance: str) -> None:
        self.forgotten.append(instance)


class ProvidedFleet:
    """A scaler whose provider has room for three jobs, with records of lost instances."""

    def __init__(self, provider: TableProvider | None = None) -> None:
        self.provider = provider or TableProvider()
        self.plugin = InProcess(self.provider)
        self.clock = VirtualClock()
        self.mechanic = Mechanic()
        self.lost: list[tuple[str, list[str]]] = []
        self.demand = Demand()
        self.new_scaler()

    def new_scaler(self) -> None:
        self.scaler = ProvidedScaler(
            FleetSetup(name="r", owner="s/r", groups=(GroupSetup(name="g", config={"max_size": 3}),)),
            self.plugin,
            host=ScalerHost(
                machines=self.mechanic,
                fetch_demand=self._demand,
                on_lost=lambda instance, holders, _why: self.lost.append((instance, list(holders))),
            ),
            clock=self.clock,
        )

    async def start(self) -> None:
        self.task = asyncio.create_task(self.scaler.run(), name="scaler")
        await self.clock.advance(1)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.scaler.close()

    async def _demand(self, waiting: Mapping[str, int]) -> Demand:
        return self.demand


async def test_jobs_acquire_and_release_instances_of_the_provider() -> None:
    fleet = ProvidedFleet()
    assert fleet.scaler.capacity() == 0
    await fleet.start()
    assert fleet.scaler.capacity() == 3
    slot = await fleet.scaler.acquire("a")
    assert slot == await fleet.scaler.acquire("a")
    assert slot.instance == f"g/{fleet.provider.held['a']}"
    assert (await fleet.scaler.connect_info(slot.instance)).internal_addr == "10.0.0.1"
    fleet.scaler.release("a")
    await fleet.clock.advance(3)
    assert fleet.provider.held == {}
    assert fleet.provider.uses == 1
    await fleet.stop()


class SlowProvider(TableProvider):
    """Answers a release only after `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()
        self.releases: list[tuple[str, bool]] = []

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        self.releases.append((holder, is_used))
        await self.answer.wait()
        await super().release(holder, is_used=is_used, warmed=warmed)


async def test_a_release_during_the_report_of_an_earlier_one_is_reported_too() -> None:
    provider = SlowProvider()
    fleet = ProvidedFleet(provider)
    await fleet.start()
    await fleet.scaler.acquire("a")
    fleet.scaler.release("a", is_used=False)
    await fleet.clock.advance(3)
    fleet.scaler.release("a")
    provider.answer.set()
    await fleet.clock.advance(3)
    assert provider.releases == [("a", False), ("a", True)]
    await fleet.stop()


class BusyProvider(TableProvider):
    """Releases another job whenever a release is reported to it."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet: ProvidedFleet | None = None
        self.calls: list[str] = []

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        self.calls.append("room")
        return await super().room(wishes)

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        self.calls.append(holder)
        await super().release(holder, is_used=is_used, warmed=warmed)
        if self.fleet is not None and len(self.calls) < 20:
            self.fleet.scaler.release(f"{holder}+")


async def test_releases_that_never_stop_do_not_keep_demand_from_the_provider() -> None:
    provider = BusyProvider()
    provider.fleet = fleet = ProvidedFleet(provider)
    await fleet.start()
    for holder in ("a", "a+", "a++"):
        await fleet.scaler.acquire(holder)
    provider.calls.clear()
    fleet.scaler.release("a")
    await fleet.clock.advance(3)
    assert provider.calls[:4] == ["a", "room", "a+", "room"]
    await fleet.stop()


async def test_a_release_is_not_reported_after_its_holder_has_acquired_an_instance_again() -> None:
    provider = SlowProvider()
    fleet = ProvidedFleet(provider)
    await fleet.start()
    for holder in ("a", "b"):
        await fleet.scaler.acquire(holder)
        fleet.scaler.release(holder)
    await fleet.clock.advance(3)
    await fleet.scaler.acquire("b")
    provider.answer.set()
    await fleet.clock.advance(3)
    assert provider.releases == [("a", True)]
    await fleet.stop()


async def test_the_provider_gets_the_demand() -> None:
    fleet = ProvidedFleet()
    soon = (Soon(jobs=2), Soon(jobs=1))
    fleet.demand = Demand(keys=(KeyDemand(key="linux", running=1, ready=4, soon=soon),))
    await fleet.start()
    fleet.scaler.set_open_requests(2)
    await fleet.clock.advance(3)
    wishes = fleet.provider.last_wishes
    assert wishes is not None
    assert wishes.open_requests == 2
    assert [(wish.key, wish.running, wish.ready, wish.soon) for wish in wishes.wanted] == [("linux", 1, 4, 3)]
    await fleet.stop()


async def test_a_job_of_an_earlier_process_keeps_its_instance_and_others_are_released() -> None:
    fleet = ProvidedFleet()
    await fleet.start()
    kept_slot = await fleet.scaler.acquire("kept")
    await fleet.scaler.acquire("forgotten")
    fleet.task.cancel()
    await asyncio.gather(fleet.task, return_exceptions=True)
    fleet.new_scaler()
    assert fleet.scaler.adopt("kept", kept_slot.instance)
    assert not fleet.scaler.adopt("other", "another-group/m1")
    await fleet.start()
    assert set(fleet.provider.held) == {"kept", "forgotten"}
    fleet.scaler.end_recovery()
    await fleet.clock.advance(3)
    assert set(fleet.provider.held) == {"kept"}
    assert await fleet.scaler.acquire("kept") == kept_slot
    await fleet.stop()


async def test_the_loss_of_an_instance_is_reported_with_its_jobs() -> None:
    class LossyProvider(TableProvider):
        gone: frozenset[str] = frozenset()

        async def update(self) -> Mapping[str, InstanceState]:
            return {name: state for name, state in (await super().update()).items() if name not in self.gone}

    provider = LossyProvider()
    fleet = ProvidedFleet(provider)
    await fleet.start()
    slot = await fleet.scaler.acquire("a")
    other = await fleet.scaler.acquire("b")
    await fleet.clock.advance(3)
    provider.gone = frozenset({provider.held["a"]})
    await fleet.clock.advance(2)
    provider.gone, gone = frozenset(), provider.gone
    await fleet.clock.advance(6)
    assert fleet.lost == []  # a single update without the instance does not count
    provider.gone = gone
    await fleet.clock.advance(6)
    assert fleet.lost == [(slot.instance, ["a"])]
    assert fleet.mechanic.forgotten == [slot.instance]
    assert await fleet.scaler.acquire("b") == other
    await fleet.stop()


async def test_a_refused_release_does_not_delay_others() -> None:
    class Stubborn(TableProvider):
        async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
            if holder == "a" and is_used:
                raise PermanentError("I do not know it")
            await super().release(holder, is_used=is_used, warmed=warmed)

    fleet = ProvidedFleet(Stubborn())
    await fleet.start()
    await fleet.scaler.acquire("a")
    await fleet.scaler.acquire("b")
    fleet.scaler.release("a")
    fleet.scaler.release("b")
    fleet.scaler.end_recovery()
    await fleet.clock.advance(6)
    assert fleet.provider.held == {}
    assert fleet.scaler.status().groups[0].error == ""
    await fleet.stop()


async def test_a_waiting_job_is_given_up_only_on_a_permanent_error() -> None:
    class Never(TableProvider):
        async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
            raise PermanentError("there are no machines with tag windows")

    fleet = ProvidedFleet(Never())
    await fleet.start()
    with pytest.raises(AcquireTimeoutError, match="no machines with tag windows"):
        await fleet.scaler.acquire("a")
    await fleet.stop()


async def test_a_provider_that_fails_for_a_while_costs_no_job() -> None:
    class Shaky(TableProvider):
        tries = 0

        async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
            self.tries += 1
            if self.tries < 4:
                raise TemporaryError("busy")
            return await super().acquire(holder, key=key, caches=caches)

        async def update(self) -> Mapping[str, InstanceState]:
            if 0 < self.tries < 4:
                raise TemporaryError("busy")
            return await super().update()

    fleet = ProvidedFleet(Shaky())
    await fleet.start()
    waiting = asyncio.create_task(fleet.scaler.acquire("a"), name="a")
    await fleet.clock.advance(1)
    assert fleet.scaler.status().groups[0].error == "busy"
    await fleet.clock.advance(60)
    assert (await waiting).instance.startswith("g/")
    assert fleet.scaler.status().groups[0].error == ""
    assert fleet.lost == []
    await fleet.stop()


async def test_a_job_that_is_cancelled_while_it_waits_holds_nothing() -> None:
    fleet = ProvidedFleet()
    await fleet.start()
    for name in "abc":
        await fleet.scaler.acquire(name)
    waiting = asyncio.create_task(fleet.scaler.acquire("d"), name="d")
    await fleet.clock.advance(1)
    assert fleet.scaler.status().waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    fleet.scaler.release("a")
    await fleet.clock.advance(3)
    assert set(fleet.provider.held) == {"b", "c"}
    await fleet.stop()


async def test_the_status_shows_instances_and_the_providers_explanation() -> None:
    fleet = ProvidedFleet()
    await fleet.start()
    slot = await fleet.scaler.acquire("a")
    await fleet.clock.advance(3)
    status = fleet.scaler.status()
    assert status.held == 1
    assert {instance.name: instance.holders for instance in status.instances}[slot.instance] == ("a",)
    assert "in use" in status.explanation
    assert status.groups[0].plugin == "test/provider 1.0.0"
    await fleet.stop()


async def test_a_plain_group_is_refused_with_the_reason() -> None:
    fleet = ProvidedFleet()
    fleet.scaler = ProvidedScaler(
        FleetSetup(name="r", owner="s/r", groups=(GroupSetup(name="g"),)),
        InProcess(TableGroup()),
        host=ScalerHost(machines=fleet.mechanic),
        clock=fleet.clock,
    )
    await fleet.start()
    status = fleet.scaler.status()
    assert "does not scale by itself" in status.groups[0].error
    assert "plugin_scales is set, but the plugin is not a provider (it has: heartbeat, " in status.explanation
    assert fleet.scaler.capacity() == 0
    await fleet.stop()


async def test_an_error_while_closing_the_plugin_is_logged() -> None:
    class Stubborn(InProcess):
        async def close(self) -> None:
            raise OSError("it hangs")

    fleet = ProvidedFleet()
    fleet.plugin = Stubborn(fleet.provider)
    fleet.new_scaler()
    await fleet.start()
    with capture_logs() as logs:
        await fleet.stop()
    assert [line["cause"] for line in logs if line["log_level"] == "error"] == ["OSError: it hangs"]
