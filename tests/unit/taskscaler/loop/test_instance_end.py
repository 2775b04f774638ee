"""How a fleet ends: which instances are removed, how soon that is noticed, and what is logged."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from remuda.testing.logs import capture_logs
from remuda.testing.scalers import OWNER, Mechanic, Stable


async def start_ending_fleet(tmp_path: Path, *, machines: int = 2) -> Stable:
    stable = Stable(tmp_path)
    stable.setup = replace(stable.setup, delete_on_shutdown=True)
    stable.policy(idle_count=machines, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    assert len(stable.instances("ready")) == machines
    return stable


async def test_the_end_waits_no_longer_than_its_instances_take(tmp_path: Path) -> None:
    stable = await start_ending_fleet(tmp_path)
    stable.cloud.delete_seconds = 0.5
    began = stable.clock.now()
    await stable.close()
    assert stable.clock.now() - began <= 2.0 < stable.setup.shutdown_deletion_seconds
    assert stable.cloud.list_instances() == {}
    assert stable.cloud.calls.count("decrease") == 1


async def test_instances_that_remain_are_deleted_again_after_the_interval(tmp_path: Path) -> None:
    stable = await start_ending_fleet(tmp_path)
    stable.cloud.accepts = 0
    with capture_logs() as logs:
        await stable.close()
    assert stable.cloud.calls.count("decrease") == 3  # at 0, 10 and 20 of 30 seconds
    assert [
        entry["cause"]
        for entry in logs
        if entry["event"] == "cannot shut down the fleet completely; some instances may still exist"
    ]
    assert len(stable.cloud.list_instances()) == 2


async def test_the_log_names_removed_and_kept_instances_with_the_reason(tmp_path: Path) -> None:
    stable = await start_ending_fleet(tmp_path, machines=3)
    busy = (await stable.acquire("job"))["job"].instance
    await stable.run(40)
    idle = sorted(stable.instances().keys() - {busy})
    stable.setup = replace(stable.setup, delete_because="its runner is gone")
    stable.scaler.change(stable.setup)
    with capture_logs() as logs:
        await stable.close()
    removed = [entry for entry in logs if entry["event"] == "removing instances"]
    assert [(entry["instances"], entry["why"]) for entry in removed] == [(idle, "its runner is gone")]
    busy_logs = [entry for entry in logs if entry["event"] == "fleet ends; instances with running jobs are not deleted"]
    assert [entry["instances"] for entry in busy_logs] == [[busy]]


async def test_instances_that_came_for_another_runner_meanwhile_stay(tmp_path: Path) -> None:
    """Another runner may use the same group with a plugin that cannot tag."""
    stable = await start_ending_fleet(tmp_path)
    theirs = stable.cloud.make(1)
    ours = stable.cloud.make(1, OWNER)
    await stable.close()
    await stable.run(20)
    assert stable.cloud.list_instances().keys() == set(theirs)
    assert ours[0] not in stable.cloud.machines


async def test_lost_instances_are_cleaned_up_at_once_even_if_a_cleanup_hangs(stable: Stable) -> None:
    """A new machine may have the same name and must find nothing of the earlier one."""

    class Slow(Mechanic):
        async def forget(self, instance: str) -> None:
            await super().forget(instance)
            await asyncio.Event().wait()

    stable.mechanic = Slow()
    stable.policy(idle_count=2, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    for name in list(stable.cloud.machines):
        stable.cloud.lose(name)
    stable.scaler.look()
    await stable.run(15, step=1.0)
    assert sorted(stable.mechanic.forgotten) == ["i-1", "i-2"]
