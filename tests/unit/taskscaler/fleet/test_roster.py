"""Failures that count against an instance, and when a group is looked at again."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.fleeting.port import InstanceState
from remuda.taskscaler.fleet.members import strike_seconds
from remuda.taskscaler.fleet.setup import FleetSetup
from remuda.testing.scalers import Stable


@pytest.mark.parametrize("threshold", [1, 2, 3, 10, 1000])
def test_failures_that_make_an_instance_unhealthy_are_far_apart(threshold: int) -> None:
    setup = FleetSetup(name="one", owner="s/one", groups=(), heartbeat_seconds=60.0, expecting_seconds=2.0)
    pause = strike_seconds(setup, threshold=threshold)
    assert pause >= setup.expecting_seconds
    assert pause * max(threshold - 1, 1) >= setup.heartbeat_seconds / 2


async def test_a_short_network_outage_costs_no_instance(stable: Stable) -> None:
    """A failed check is repeated, but the failures that make an instance unhealthy span at least half a minute."""
    stable.policy(idle_count=1, idle_seconds=3600.0)
    await stable.start()
    await stable.run(60)
    (name,) = stable.instances("ready")
    stable.mechanic.ill.add(name)
    stable.scaler.report(name, is_well=False)
    await stable.run(20, step=1.0)
    assert [instance.state for instance in stable.instances().values()] == ["suspect"]
    stable.mechanic.ill.clear()
    await stable.run(60, step=1.0)
    assert stable.instances("ready").keys() == {name}
    assert "unhealthy" not in {decision.reason for decision in stable.scaler.status().decisions}


async def test_simultaneous_reports_of_all_jobs_of_an_instance_count_once(stable: Stable) -> None:
    await stable.start()
    name = (await stable.acquire("job"))["job"].instance
    for _ in range(50):
        stable.scaler.report(name, is_well=False)
    await stable.run(10, step=1.0)
    assert (stable.instances()[name].failures, stable.instances()[name].state) == (1, "ready")
    await stable.run(10, step=1.0)
    stable.scaler.report(name, is_well=False)
    assert stable.instances()[name].failures == 2
    stable.scaler.report(name, is_well=True)
    assert stable.instances()[name].failures == 0


async def test_the_place_of_a_foreign_instance_is_free_soon_after_it_is_gone(tmp_path: Path) -> None:
    """As after a runner was renamed: the new fleet waits for the places of the old one."""
    stable = Stable(tmp_path, max_instances=2)
    stable.setup = replace(stable.setup, update_seconds=600.0)
    names = stable.cloud.make(2, "s_test/old-name")
    await stable.start()
    await stable.run(30)
    assert [instance.state for instance in stable.instances().values()] == ["foreign", "foreign"]
    assert all("s_test/old-name" in instance.error for instance in stable.instances().values())
    for name in names:
        stable.cloud.lose(name)
    stable.scaler.look()
    await stable.run(10, step=1.0)
    assert stable.instances() == {}
    # The end of a foreign instance is neither a failure nor a reason to warn.
    status = stable.scaler.status()
    assert {decision.reason for decision in status.decisions} == {"gone"}
    assert status.groups[0].error == ""
    await stable.acquire("job")
    await stable.close()


async def test_an_instance_that_its_plugin_cannot_look_up_keeps_its_job_and_is_not_removed(stable: Stable) -> None:
    await stable.start()
    name = (await stable.acquire("job"))["job"].instance
    prepared = len(stable.mechanic.prepared)
    machine = stable.cloud.machines[name]
    machine.state = InstanceState.UNKNOWN
    await stable.run(7200, step=60.0)
    assert stable.lost == []
    assert stable.instances()[name].state == "unknown"
    stable.release("job")
    await stable.run(7200, step=60.0)
    assert name in stable.instances("unknown")
    machine.state = None
    await stable.run(2, step=1.0)
    assert len(stable.mechanic.prepared) == prepared


async def test_an_instance_that_is_deleted_when_first_listed_is_a_failed_creation(stable: Stable) -> None:
    """For example a machine whose start fails at once: the cause is reported, and the next creation is not minutes
    away."""
    stable.policy(idle_count=1, idle_seconds=3600.0)
    stable.cloud.first_state = InstanceState.DELETED
    await stable.start()
    await stable.run(10, step=1.0)
    (group,) = stable.scaler.status().groups
    assert group.failures >= 1
    assert "was deleted before it was first listed" in group.error
    stable.cloud.first_state = None
    await stable.run(240)
    assert len(stable.instances("ready")) == 1


async def test_a_deleted_instance_that_is_still_listed_fulfills_no_request(tmp_path: Path) -> None:
    stable = Stable(tmp_path, boot_seconds=60.0)
    stable.cloud.first_state = InstanceState.DELETED
    stable.cloud.make(3)
    await stable.start()
    await stable.run(10, step=1.0)
    stable.cloud.make(3, "s_other/runner")
    stable.cloud.first_state = None
    assert set(await stable.acquire("job")) == {"job"}
    (group,) = stable.scaler.status().groups
    assert (group.failures, stable.cloud.made) == (0, 7)
    await stable.close()
