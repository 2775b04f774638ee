"""The scaling loop acts on plans: instances come for jobs and go after them, whatever happens in between."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.in_process import InProcess
from remuda.fleeting.port import ProviderInfo
from remuda.lib.clock import settle
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.taskscaler.loop.state import read_state, state_path
from remuda.taskscaler.loop.sweep import sweep
from remuda.testing.scalers import OWNER, CloudGroup, InlineWriter, Stable


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


async def test_job_waits_on_if_instance_is_lost_before_slot(stable: Stable, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_job_with_a_lost_slot_keeps_turn_caches_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


MOST = 6


class RandomEvents(RuleBasedStateMachine):
    """Drives one fleet through random events."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.jobs: dict[str, asyncio.Task[Any]] = {}
        self.number = 0

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize(capacity=st.integers(1, 3), uses=st.sampled_from([0, 0, 1, 4]), idle=st.integers(0, 3))
    def begin(self, capacity: int, uses: int, idle: int) -> None:
        self.stable = Stable(
            Path(self.folder.name),
            boot_seconds=20.0,
            max_instances=MOST,
            capacity_per_instance=capacity,
            max_use_count=uses,
            creation_seconds=120.0,
            delivery_seconds=120.0,
        )
        self.stable.policy(idle_count=idle, idle_seconds=60.0)
        self.do(self.stable.start())

    def assigned_instances(self) -> dict[str, str]:
        """Return the instance of each job that has one and has not lost it."""
        lost = {holder for _, holders in self.stable.lost for holder in holders}
        return {
            name: task.result().instance
            for name, task in self.jobs.items()
            if name not in lost and task.done() and not task.cancelled() and task.exception() is None
        }

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0, 40.0, 100.0]))
    def advance_time(self, seconds: float) -> None:
        self.do(self.stable.run(seconds, step=10.0))

    @rule(count=st.integers(1, 4))
    def submit_jobs(self, count: int) -> None:
        async def submit() -> None:
            for _ in range(count):
                self.number += 1
                name = f"job-{self.number}"
                self.jobs[name] = asyncio.create_task(self.stable.scaler.acquire(name), name=name)
            await settle()

        self.do(submit())

    @rule(data=st.data(), is_used=st.booleans())
    def end_a_job(self, data: st.DataObject, is_used: bool) -> None:
        if self.jobs:
            name = data.draw(st.sampled_from(sorted(self.jobs)))
            self.do(self.end(name, is_used))

    async def end(self, name: str, is_used: bool) -> None:
        task = self.jobs.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.stable.scaler.release(name, is_used=is_used)

    @rule(data=st.data())
    def lose_an_instance(self, data: st.DataObject) -> None:
        if names := sorted(self.stable.cloud.list_instances()):
            self.stable.cloud.lose(data.draw(st.sampled_from(names)))

    @rule(data=st.data())
    def make_an_instance_ill(self, data: st.DataObject) -> None:
        if names := sorted(self.stable.cloud.list_instances()):
            self.stable.mechanic.ill.add(data.draw(st.sampled_from(names)))

    @rule(call=st.sampled_from(["increase", "increase, late", "decrease", "update", "recover", "connect_info", "*"]))
    def break_a_call(self, call: str) -> None:
        if call == "*":
            self.stable.mechanic.broken["*"] = PermanentError("broken")
        else:
            self.stable.cloud.broken[call] = TemporaryError(f"{call} is broken")

    @rule(call=st.sampled_from(["increase", "decrease", "update"]))
    def hang_a_call(self, call: str) -> None:
        self.stable.cloud.hung.add(call)

    @rule(accepts=st.sampled_from([0, 1, 2, 1000]))
    def limit_accepted_instances(self, accepts: int) -> None:
        self.stable.cloud.accepts = accepts

    @rule()
    def repair_everything(self) -> None:
        cloud, mechanic = self.stable.cloud, self.stable.mechanic
        cloud.broken.clear()
        cloud.hung.clear()
        cloud.accepts = 1000
        mechanic.broken.clear()
        mechanic.ill.clear()

    @rule(idle=st.integers(0, 4))
    def change_the_policy(self, idle: int) -> None:
        self.stable.policy(idle_count=idle, idle_seconds=60.0)

    @rule(down=st.sampled_from([0.0, 5.0, 300.0]), is_in_order=st.booleans())
    def restart_the_process(self, down: float, is_in_order: bool) -> None:
        """End the process in order or kill it. Waiting jobs are cancelled; jobs with an instance are adopted by the
        next process."""
        assigned = self.assigned_instances()

        async def restart() -> None:
            if is_in_order:
                self.repair_everything()
                await self.stable.close()
            else:
                await self.stable.kill()
            for name, task in list(self.jobs.items()):
                if name not in assigned:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    del self.jobs[name]
            self.stable.clock.jump(down)
            await self.stable.start(is_recovered=False)
            for name, instance in assigned.items():
                assert self.stable.scaler.adopt(name, instance)
            self.stable.scaler.end_recovery()

        self.do(restart())

    @invariant()
    def every_job_has_exactly_its_own_slot(self) -> None:
        if not hasattr(self, "stable"):
            return
        places: dict[str, list[str]] = {}
        for instance in self.stable.scaler.status().instances:
            for holder in instance.holders:
                places.setdefault(holder, []).append(instance.name)
        assert all(len(each) == 1 for each in places.values())
        for name, instance_name in self.assigned_instances().items():
            assert places.get(name) == [instance_name]

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        # An Increase that made instances and failed, or whose caller died, is not known until the next update.
        if hasattr(self, "stable"):
            assert self.stable.cloud.most <= MOST

    def teardown(self) -> None:
        if hasattr(self, "stable"):
            self.do(self.finish())
        self.runner.close()
        self.folder.cleanup()

    async def finish(self) -> None:
        self.repair_everything()
        for name in list(self.jobs):
            await self.end(name, True)
        self.stable.policy(idle_count=0, idle_seconds=60.0)
        await self.stable.run(1500, step=20.0)
        assert self.stable.cloud.list_instances() == {}
        assert self.stable.instances() == {}
        assert self.stable.scaler.status().requests == ()
        plugins = {"": InProcess(CloudGroup(self.stable.cloud))}
        await plugins[""].init({}, self.stable.setup.groups[0].settings)
        options = {"folder": self.stable.folder, "clock": self.stable.clock, "grace_seconds": 0.0, "remove": False}
        assert (await sweep(self.stable.setup, plugins, lambda: {OWNER}, **options)).found == ()  # type: ignore[arg-type]
        stored = read_state(state_path(self.stable.folder, self.stable.setup.name))
        assert (stored.instances, stored.requests) == ((), ())
        await self.stable.close()


TestRandomEvents = RandomEvents.TestCase
TestRandomEvents.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
