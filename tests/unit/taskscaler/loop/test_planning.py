"""Plans of a fleet that drains: its manager asks for no more jobs."""

import asyncio

from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.testing.scalers import Stable


async def test_a_draining_fleet_creates_instances_only_for_jobs_that_wait_here(stable: Stable) -> None:
    stable.demand = lambda: Demand(keys=(KeyDemand(key="linux", ready=5),))
    stable.policy(idle_count=3, idle_seconds=300.0)
    await stable.start()
    stable.scaler.drain()
    await stable.run(120)
    assert stable.cloud.made == 0
    assert "no idle slots are wanted" in stable.scaler.status().explanation
    await stable.acquire("job")
    assert stable.cloud.made == 1


async def test_a_draining_fleet_keeps_idle_instances_as_long_as_the_policy_says(stable: Stable) -> None:
    """A manager that is only restarted finds its idle instances again; one that waits for long jobs does not pay for
    them."""
    stable.policy(idle_count=3, idle_seconds=300.0)
    await stable.start()
    await stable.run(60)
    job = asyncio.create_task(stable.scaler.acquire("job"))
    await stable.run(5)
    stable.scaler.drain()
    await stable.run(200)
    assert len(stable.instances("ready")) == 4
    await stable.run(200)
    assert stable.instances("ready").keys() == {(await job).instance}
