"""A fleet that its plugin scales: told what is wanted, asked for instances, watched for losses."""

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
    """Notes what it is to forget."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def prepare(self, instance: str, info: ConnectInfo) -> None:
        raise AssertionError("machines of a provider are ready when they are given")

    async def check(self, instance: str) -> None:
        raise AssertionError("a provider looks after its machines itself")

    async def forget(self, instance: str) -> None:
        self.forgotten.append(instance)


class Ranch:
    """A provider with room for three jobs, and what is told of it."""

    def __init__(self, provider: TableProvider | None = None) -> None:
        self.provider = provider or TableProvider()
        self.plugin = InProcess(self.provider)
        self.clock = VirtualClock()
        self.mechanic = Mechanic()
        self.lost: list[tuple[str, list[str]]] = []
        self.told = Demand()
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
        return self.told


async def test_jobs_get_what_the_provider_gives_and_give_it_back() -> None:
    ranch = Ranch()
    assert ranch.scaler.capacity() == 0
    await ranch.start()
    assert ranch.scaler.capacity() == 3
    slot = await ranch.scaler.acquire("a")
    assert slot == await ranch.scaler.acquire("a")
    assert slot.instance == f"g/{ranch.provider.held['a']}"
    assert (await ranch.scaler.connect_info(slot.instance)).internal_addr == "10.0.0.1"
    ranch.scaler.release("a")
    await ranch.clock.advance(3)
    assert ranch.provider.held == {}
    assert ranch.provider.uses == 1
    await ranch.stop()


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
    ranch = Ranch(provider)
    await ranch.start()
    await ranch.scaler.acquire("a")
    ranch.scaler.release("a", is_used=False)
    await ranch.clock.advance(3)
    ranch.scaler.release("a")
    provider.answer.set()
    await ranch.clock.advance(3)
    assert provider.releases == [("a", False), ("a", True)]
    await ranch.stop()


class BusyProvider(TableProvider):
    """Whenever it hears of a release, another job ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ranch: Ranch | None = None
        self.calls: list[str] = []

    async def room(self, wishes: Wishes) -> RoomAtProvider:
        self.calls.append("room")
        return await super().room(wishes)

    async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
        self.calls.append(holder)
        await super().release(holder, is_used=is_used, warmed=warmed)
        if self.ranch is not None and len(self.calls) < 20:
            self.ranch.scaler.release(f"{holder}+")


async def test_releases_that_never_stop_do_not_keep_demand_from_the_provider() -> None:
    provider = BusyProvider()
    provider.ranch = ranch = Ranch(provider)
    await ranch.start()
    for holder in ("a", "a+", "a++"):
        await ranch.scaler.acquire(holder)
    provider.calls.clear()
    ranch.scaler.release("a")
    await ranch.clock.advance(3)
    assert provider.calls[:4] == ["a", "room", "a+", "room"]
    await ranch.stop()


async def test_a_release_is_not_reported_after_its_holder_has_acquired_an_instance_again() -> None:
    provider = SlowProvider()
    ranch = Ranch(provider)
    await ranch.start()
    for holder in ("a", "b"):
        await ranch.scaler.acquire(holder)
        ranch.scaler.release(holder)
    await ranch.clock.advance(3)
    await ranch.scaler.acquire("b")
    provider.answer.set()
    await ranch.clock.advance(3)
    assert provider.releases == [("a", True)]
    await ranch.stop()


async def test_the_provider_is_told_what_is_wanted() -> None:
    ranch = Ranch()
    soon = (Soon(jobs=2), Soon(jobs=1))
    ranch.told = Demand(keys=(KeyDemand(key="linux", running=1, ready=4, soon=soon),))
    await ranch.start()
    ranch.scaler.set_open_requests(2)
    await ranch.clock.advance(3)
    told = ranch.provider.last_wishes
    assert told is not None
    assert told.open_requests == 2
    assert [(one.key, one.running, one.ready, one.soon) for one in told.wanted] == [("linux", 1, 4, 3)]
    await ranch.stop()


async def test_a_job_of_an_earlier_process_keeps_its_instance_and_others_are_let_go() -> None:
    ranch = Ranch()
    await ranch.start()
    kept = await ranch.scaler.acquire("kept")
    await ranch.scaler.acquire("forgotten")
    ranch.task.cancel()
    await asyncio.gather(ranch.task, return_exceptions=True)
    ranch.new_scaler()
    assert ranch.scaler.adopt("kept", kept.instance)
    assert not ranch.scaler.adopt("other", "another-group/m1")
    await ranch.start()
    assert set(ranch.provider.held) == {"kept", "forgotten"}
    ranch.scaler.end_recovery()
    await ranch.clock.advance(3)
    assert set(ranch.provider.held) == {"kept"}
    assert await ranch.scaler.acquire("kept") == kept
    await ranch.stop()


async def test_an_instance_that_is_gone_is_lost_to_its_jobs() -> None:
    class Storm(TableProvider):
        gone: frozenset[str] = frozenset()

        async def update(self) -> Mapping[str, InstanceState]:
            return {one: state for one, state in (await super().update()).items() if one not in self.gone}

    storm = Storm()
    ranch = Ranch(storm)
    await ranch.start()
    slot = await ranch.scaler.acquire("a")
    other = await ranch.scaler.acquire("b")
    await ranch.clock.advance(3)
    storm.gone = frozenset({storm.held["a"]})
    await ranch.clock.advance(2)
    storm.gone, gone = frozenset(), storm.gone
    await ranch.clock.advance(6)
    assert ranch.lost == []  # one look that does not show it says nothing
    storm.gone = gone
    await ranch.clock.advance(6)
    assert ranch.lost == [(slot.instance, ["a"])]
    assert ranch.mechanic.forgotten == [slot.instance]
    assert await ranch.scaler.acquire("b") == other
    await ranch.stop()


async def test_a_refused_release_holds_up_nobody() -> None:
    class Stubborn(TableProvider):
        async def release(self, holder: str, *, is_used: bool = True, warmed: Sequence[str] = ()) -> None:
            if holder == "a" and is_used:
                raise PermanentError("I do not know it")
            await super().release(holder, is_used=is_used, warmed=warmed)

    ranch = Ranch(Stubborn())
    await ranch.start()
    await ranch.scaler.acquire("a")
    await ranch.scaler.acquire("b")
    ranch.scaler.release("a")
    ranch.scaler.release("b")
    ranch.scaler.end_recovery()
    await ranch.clock.advance(6)
    assert ranch.provider.held == {}
    assert ranch.scaler.status().groups[0].error == ""
    await ranch.stop()


async def test_who_waits_is_given_up_only_when_the_provider_says_never() -> None:
    class Never(TableProvider):
        async def acquire(self, holder: str, *, key: str = "", caches: Sequence[str] = ()) -> str:
            raise PermanentError("there are no machines with tag windows")

    ranch = Ranch(Never())
    await ranch.start()
    with pytest.raises(AcquireTimeoutError, match="no machines with tag windows"):
        await ranch.scaler.acquire("a")
    await ranch.stop()


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

    ranch = Ranch(Shaky())
    await ranch.start()
    waiting = asyncio.create_task(ranch.scaler.acquire("a"), name="a")
    await ranch.clock.advance(1)
    assert ranch.scaler.status().groups[0].error == "busy"
    await ranch.clock.advance(60)
    assert (await waiting).instance.startswith("g/")
    assert ranch.scaler.status().groups[0].error == ""
    assert ranch.lost == []
    await ranch.stop()


async def test_a_job_that_is_given_up_while_it_waits_holds_nothing() -> None:
    ranch = Ranch()
    await ranch.start()
    for name in "abc":
        await ranch.scaler.acquire(name)
    waiting = asyncio.create_task(ranch.scaler.acquire("d"), name="d")
    await ranch.clock.advance(1)
    assert ranch.scaler.status().waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    ranch.scaler.release("a")
    await ranch.clock.advance(3)
    assert set(ranch.provider.held) == {"b", "c"}
    await ranch.stop()


async def test_status_shows_its_instances_and_its_own_words() -> None:
    ranch = Ranch()
    await ranch.start()
    slot = await ranch.scaler.acquire("a")
    await ranch.clock.advance(3)
    status = ranch.scaler.status()
    assert status.held == 1
    assert {one.name: one.holders for one in status.instances}[slot.instance] == ("a",)
    assert "in use" in status.explanation
    assert status.groups[0].plugin == "test/provider 1.0.0"
    await ranch.stop()


async def test_a_plain_group_is_refused_with_the_reason() -> None:
    ranch = Ranch()
    ranch.scaler = ProvidedScaler(
        FleetSetup(name="r", owner="s/r", groups=(GroupSetup(name="g"),)),
        InProcess(TableGroup()),
        host=ScalerHost(machines=ranch.mechanic),
        clock=ranch.clock,
    )
    await ranch.start()
    status = ranch.scaler.status()
    assert "does not scale by itself" in status.groups[0].error
    assert "plugin_scales is set, but the plugin is no provider (it has heartbeat, " in status.explanation
    assert ranch.scaler.capacity() == 0
    await ranch.stop()


async def test_a_plugin_that_does_not_end_in_order_is_told_of_and_left() -> None:
    class Stubborn(InProcess):
        async def close(self) -> None:
            raise OSError("it hangs")

    ranch = Ranch()
    ranch.plugin = Stubborn(ranch.provider)
    ranch.new_scaler()
    await ranch.start()
    with capture_logs() as said:
        await ranch.stop()
    assert [line["cause"] for line in said if line["log_level"] == "error"] == ["OSError: it hangs"]
