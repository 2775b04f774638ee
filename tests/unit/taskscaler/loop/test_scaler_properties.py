"""Whatever a provider, machines, jobs and crashes do: no job loses its instance by our doing, no limit is exceeded, and
when all is over nothing is left."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from remuda.fleeting import InProcess, PermanentError, TemporaryError
from remuda.lib.clock import settle
from remuda.taskscaler.loop.state import read_state, state_path
from remuda.taskscaler.loop.sweep import sweep
from remuda.testing.scalers import OWNER, CloudGroup, Stable

MOST = 6


class AnyLife(RuleBasedStateMachine):
    """One fleet through everything that may happen."""

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

    def held(self) -> dict[str, str]:
        """The instance of each job that has one and has not lost it."""
        lost = {holder for _, holders in self.stable.lost for holder in holders}
        return {
            name: task.result().instance
            for name, task in self.jobs.items()
            if name not in lost and task.done() and not task.cancelled() and task.exception() is None
        }

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 10.0, 40.0, 100.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.do(self.stable.run(seconds, step=10.0))

    @rule(count=st.integers(1, 4))
    def jobs_come(self, count: int) -> None:
        async def come() -> None:
            for _ in range(count):
                self.number += 1
                name = f"job-{self.number}"
                self.jobs[name] = asyncio.create_task(self.stable.scaler.acquire(name), name=name)
            await settle()

        self.do(come())

    @rule(data=st.data(), is_used=st.booleans())
    def a_job_ends(self, data: st.DataObject, is_used: bool) -> None:
        if self.jobs:
            name = data.draw(st.sampled_from(sorted(self.jobs)))
            self.do(self.end(name, is_used))

    async def end(self, name: str, is_used: bool) -> None:
        task = self.jobs.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.stable.scaler.release(name, is_used=is_used)

    @rule(data=st.data())
    def an_instance_is_lost(self, data: st.DataObject) -> None:
        if list_instances := sorted(self.stable.cloud.list_instances()):
            self.stable.cloud.lose(data.draw(st.sampled_from(list_instances)))

    @rule(data=st.data())
    def an_instance_is_ill(self, data: st.DataObject) -> None:
        if list_instances := sorted(self.stable.cloud.list_instances()):
            self.stable.mechanic.ill.add(data.draw(st.sampled_from(list_instances)))

    @rule(call=st.sampled_from(["increase", "increase, late", "decrease", "update", "recover", "connect_info", "*"]))
    def something_breaks(self, call: str) -> None:
        if call == "*":
            self.stable.mechanic.broken["*"] = PermanentError("broken")
        else:
            self.stable.cloud.broken[call] = TemporaryError(f"{call} is broken")

    @rule(call=st.sampled_from(["increase", "decrease", "update"]))
    def something_hangs(self, call: str) -> None:
        self.stable.cloud.hung.add(call)

    @rule(accepts=st.sampled_from([0, 1, 2, 1000]))
    def half_is_accepted(self, accepts: int) -> None:
        self.stable.cloud.accepts = accepts

    @rule()
    def all_is_mended(self) -> None:
        cloud, mechanic = self.stable.cloud, self.stable.mechanic
        cloud.broken.clear()
        cloud.hung.clear()
        cloud.accepts = 1000
        mechanic.broken.clear()
        mechanic.ill.clear()

    @rule(idle=st.integers(0, 4))
    def the_policy_changes(self, idle: int) -> None:
        self.stable.policy(idle_count=idle, idle_seconds=60.0)

    @rule(down=st.sampled_from([0.0, 5.0, 300.0]), is_in_order=st.booleans())
    def a_new_process(self, down: float, is_in_order: bool) -> None:
        """It ends in order or not; waiting jobs are asked for anew, others adopted by whoever knows them."""
        held = self.held()

        async def again() -> None:
            if is_in_order:
                self.all_is_mended()
                await self.stable.close()
            else:
                await self.stable.kill()
            for name, task in list(self.jobs.items()):
                if name not in held:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    del self.jobs[name]
            self.stable.clock.jump(down)
            await self.stable.start(is_recovered=False)
            for name, instance in held.items():
                assert self.stable.scaler.adopt(name, instance)
            self.stable.scaler.end_recovery()

        self.do(again())

    @invariant()
    def nobody_has_two_slots_and_all_have_the_one_they_were_given(self) -> None:
        if not hasattr(self, "stable"):
            return
        places: dict[str, list[str]] = {}
        for one in self.stable.scaler.status().instances:
            for holder in one.holders:
                places.setdefault(holder, []).append(one.name)
        assert all(len(each) == 1 for each in places.values())
        assert {name: places.get(name) for name in self.held()} == {name: [one] for name, one in self.held().items()}

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        # An Increase that made instances and failed, or whose caller died, is not known until the next update.
        if hasattr(self, "stable"):
            assert self.stable.cloud.most <= MOST

    def teardown(self) -> None:
        if hasattr(self, "stable"):
            self.do(self.to_the_end())
        self.runner.close()
        self.folder.cleanup()

    async def to_the_end(self) -> None:
        self.all_is_mended()
        for name in list(self.jobs):
            await self.end(name, True)
        self.stable.policy(idle_count=0, idle_seconds=60.0)
        await self.stable.run(1500, step=20.0)
        assert self.stable.cloud.list_instances() == {}
        assert self.stable.instances() == {}
        assert self.stable.scaler.status().requests == ()
        plugins = {"": InProcess(CloudGroup(self.stable.cloud))}
        await plugins[""].init({}, self.stable.setup.groups[0].settings)
        how = {"folder": self.stable.folder, "clock": self.stable.clock, "grace_seconds": 0.0, "remove": False}
        assert (await sweep(self.stable.setup, plugins, lambda: {OWNER}, **how)).found == ()  # type: ignore[arg-type]
        stored = read_state(state_path(self.stable.folder, self.stable.setup.name))
        assert (stored.instances, stored.requests) == ((), ())
        await self.stable.close()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
