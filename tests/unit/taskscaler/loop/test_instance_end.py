"""How a fleet ends: what goes, how soon that is noticed, and what is said of it."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from remuda.testing.logs import capture_logs
from remuda.testing.scalers import OWNER, Mechanic, Stable


async def an_ending_fleet(tmp_path: Path, *, machines: int = 2) -> Stable:
    stable = Stable(tmp_path)
    stable.setup = replace(stable.setup, delete_on_shutdown=True)
    stable.policy(idle_count=machines, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    assert len(stable.instances("ready")) == machines
    return stable


async def test_the_end_waits_no_longer_than_its_instances_take(tmp_path: Path) -> None:
    stable = await an_ending_fleet(tmp_path)
    stable.cloud.delete_seconds = 0.5
    began = stable.clock.now()
    await stable.close()
    assert stable.clock.now() - began <= 2.0 < stable.setup.shutdown_deletion_seconds
    assert stable.cloud.list_instances() == {}
    assert stable.cloud.calls.count("decrease") == 1


async def test_what_does_not_go_is_asked_again_after_the_interval(tmp_path: Path) -> None:
    stable = await an_ending_fleet(tmp_path)
    stable.cloud.accepts = 0
    with capture_logs() as said:
        await stable.close()
    assert stable.cloud.calls.count("decrease") == 3  # at 0, 10 and 20 of 30 seconds
    assert [
        one["cause"]
        for one in said
        if one["event"] == "cannot shut down the fleet completely; some instances may still exist"
    ]
    assert len(stable.cloud.list_instances()) == 2


async def test_the_log_names_what_goes_and_what_stays_and_says_why(tmp_path: Path) -> None:
    stable = await an_ending_fleet(tmp_path, machines=3)
    busy = (await stable.acquire("job"))["job"].instance
    await stable.run(40)
    idle = sorted(stable.instances().keys() - {busy})
    stable.setup = replace(stable.setup, delete_because="its runner is gone")
    stable.scaler.change(stable.setup)
    with capture_logs() as said:
        await stable.close()
    removed = [one for one in said if one["event"] == "removing instances"]
    assert [(one["instances"], one["why"]) for one in removed] == [(idle, "its runner is gone")]
    assert [one["instances"] for one in said if one["event"] == "keeping instances with running jobs"] == [[busy]]


async def test_what_came_for_somebody_else_meanwhile_stays(tmp_path: Path) -> None:
    """Another runner may have the same group, and a plugin that cannot tag."""
    stable = await an_ending_fleet(tmp_path)
    theirs = stable.cloud.make(1)
    ours = stable.cloud.make(1, OWNER)
    await stable.close()
    await stable.run(20)
    assert stable.cloud.list_instances().keys() == set(theirs)
    assert ours[0] not in stable.cloud.machines


async def test_who_is_gone_is_forgotten_at_once_however_long_another_takes(stable: Stable) -> None:
    """A machine of the same name may come, and must find nothing of the one before it."""

    class Slow(Mechanic):
        async def forget(self, instance: str) -> None:
            await super().forget(instance)
            await asyncio.Event().wait()

    stable.mechanic = Slow()
    stable.policy(idle_count=2, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    for one in list(stable.cloud.machines):
        stable.cloud.lose(one)
    stable.scaler.look()
    await stable.run(15, step=1.0)
    assert sorted(stable.mechanic.forgotten) == ["i-1", "i-2"]
