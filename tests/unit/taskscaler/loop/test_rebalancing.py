"""Providers that change a group by themselves, observed by a running scaler."""

from pathlib import Path

from msgspec.structs import replace
from structlog.typing import EventDict

from remuda.taskscaler.fleet.setup import NoMetrics
from remuda.testing.logs import capture_logs
from remuda.testing.scalers import OWNER, Stable


class Losses(NoMetrics):
    """Records losses."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def count_loss(self, group: str, cause: str) -> None:
        self.recorded.append((group, cause))


def warnings(logs: list[EventDict]) -> list[str]:
    return [
        entry["advice"]
        for entry in logs
        if entry["event"] == "provider creates or deletes instances by itself; jobs on deleted ones fail"
    ]


async def rebalance(stable: Stable, old: str) -> None:
    """As AWS does it: the new instance is created first, then the old one is removed, whatever runs there."""
    stable.cloud.make(1, OWNER)
    await stable.run(60)
    stable.cloud.lose(old)
    await stable.run(60)


async def test_accepted_means_capacity_rebalancing_is_named(tmp_path: Path) -> None:
    """The cloud replaces instances under running jobs: the loss, the explanation and the log name the cause and the
    remedy."""
    stable = Stable(tmp_path, "aws")
    stable.metrics = losses = Losses()
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=0, idle_seconds=3600.0)
    await stable.start()
    first = (await stable.acquire("one"))["one"].instance
    await stable.run(300)
    with capture_logs() as logs:
        await rebalance(stable, first.removeprefix("aws/"))
    assert stable.lost == [(first, ["one"])]
    assert stable.causes[0].startswith("possibly its provider replaces instances by itself")
    assert warnings(logs) == []
    second = (await stable.acquire("two"))["two"].instance
    await stable.run(300)
    with capture_logs() as logs:
        await rebalance(stable, second.removeprefix("aws/"))
    assert stable.lost[1:] == [(second, ["two"])]
    assert stable.causes[1].startswith("most likely its provider replaces instances by itself")
    status = stable.scaler.status()
    assert "AZRebalance" in status.groups[0].note
    assert "most likely its provider replaces" in status.decisions[-1].text
    (warning,) = warnings(logs)
    for word in ("AZRebalance", "scale-in", "autoscaler"):
        assert word in warning
    assert losses.recorded == [("aws", "replaced")] * 2
    await stable.run(4000)
    assert stable.scaler.status().groups[0].note == ""
    await stable.close()


async def test_overprovisioning_is_named(tmp_path: Path) -> None:
    """Azure creates one instance more than requested, and removes one when enough have started."""
    stable = Stable(tmp_path, boot_seconds=60.0)
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=1, idle_seconds=3600.0)
    await stable.start()
    await stable.run(5)
    with capture_logs() as logs:
        for number in range(2):
            stable.policy(idle_count=2 + 2 * number, idle_seconds=3600.0)
            await stable.run(5)
            (extra,) = stable.cloud.make(1, OWNER)
            await stable.run(40)
            stable.cloud.lose(extra)
            await stable.run(60)
    assert "overprovision = false" in stable.scaler.status().groups[0].note
    assert len(warnings(logs)) == 1
    await stable.close()


async def test_an_instance_that_the_provider_deletes_is_a_loss_too(stable: Stable) -> None:
    """A plugin may list an instance as `deleting` because its provider ends it; that is a loss as well."""
    stable.metrics = losses = Losses()
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=0, idle_seconds=3600.0)
    await stable.start()
    (slot,) = (await stable.acquire("one")).values()
    await stable.run(300)
    stable.cloud.make(1, OWNER)
    await stable.run(60)
    stable.cloud.machines[slot.instance].gone_at = stable.clock.now() + 30.0
    await stable.run(60)
    assert stable.lost == [(slot.instance, ["one"])]
    assert "its provider replaces" in stable.causes[0]
    assert losses.recorded == [("", "replaced")]


async def test_our_own_and_manual_changes_are_not_taken_for_rebalancing(stable: Stable) -> None:
    """Scaling up and down, manually added machines, and a plugin that lists nothing for a while."""
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=3, idle_seconds=30.0)
    await stable.start()
    await stable.run(100)
    stable.cloud.make(3)
    await stable.run(200)
    stable.cloud.shows = False
    await stable.run(60)
    stable.cloud.shows = True
    await stable.run(300)
    stable.policy(idle_count=0, idle_seconds=30.0)
    await stable.run(300)
    assert stable.scaler.status().groups[0].note == ""
