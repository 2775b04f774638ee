"""Providers that change a group by themselves, seen through a running scaler; `accepted_means_capacity`."""

from pathlib import Path

from msgspec.structs import replace
from structlog.typing import EventDict

from remuda.taskscaler.fleet.setup import NoMetrics
from remuda.testing.logs import capture_logs
from remuda.testing.scalers import OWNER, Stable


class Losses(NoMetrics):
    """Remembers losses."""

    def __init__(self) -> None:
        self.of: list[tuple[str, str]] = []

    def count_loss(self, group: str, cause: str) -> None:
        self.of.append((group, cause))


def warnings(said: list[EventDict]) -> list[str]:
    return [
        one["advice"]
        for one in said
        if one["event"] == "provider creates or deletes instances by itself; jobs on deleted ones fail"
    ]


async def rebalance(stable: Stable, old: str) -> None:
    """As AWS does it: the new one first, then the old one goes, whatever runs there."""
    stable.cloud.make(1, OWNER)
    await stable.run(60)
    stable.cloud.lose(old)
    await stable.run(60)


async def test_accepted_means_capacity_rebalancing_is_named(tmp_path: Path) -> None:
    """Machines that the cloud itself replaces under jobs: the loss, the explanation and the log say so, and the fix."""
    stable = Stable(tmp_path, "aws")
    stable.metrics = losses = Losses()
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=0, idle_seconds=3600.0)
    await stable.start()
    first = (await stable.acquire("one"))["one"].instance
    await stable.run(300)
    with capture_logs() as said:
        await rebalance(stable, first.removeprefix("aws/"))
    assert stable.lost == [(first, ["one"])]
    assert stable.causes[0].startswith("possibly its provider replaces instances by itself")
    assert warnings(said) == []
    second = (await stable.acquire("two"))["two"].instance
    await stable.run(300)
    with capture_logs() as said:
        await rebalance(stable, second.removeprefix("aws/"))
    assert stable.lost[1:] == [(second, ["two"])]
    assert stable.causes[1].startswith("most likely its provider replaces instances by itself")
    status = stable.scaler.status()
    assert "AZRebalance" in status.groups[0].note
    assert "most likely its provider replaces" in status.decisions[-1].text
    (warning,) = warnings(said)
    for word in ("AZRebalance", "scale-in", "autoscaler"):
        assert word in warning
    assert losses.of == [("aws", "replaced")] * 2
    await stable.run(4000)
    assert stable.scaler.status().groups[0].note == ""
    await stable.close()


async def test_overprovisioning_is_named(tmp_path: Path) -> None:
    """Azure makes one more than it was asked for, and takes one of them back when enough have started."""
    stable = Stable(tmp_path, boot_seconds=60.0)
    stable.setup = replace(stable.setup, update_seconds=10.0)
    stable.policy(idle_count=1, idle_seconds=3600.0)
    await stable.start()
    await stable.run(5)
    with capture_logs() as said:
        for number in range(2):
            stable.policy(idle_count=2 + 2 * number, idle_seconds=3600.0)
            await stable.run(5)
            (extra,) = stable.cloud.make(1, OWNER)
            await stable.run(40)
            stable.cloud.lose(extra)
            await stable.run(60)
    assert "overprovision = false" in stable.scaler.status().groups[0].note
    assert len(warnings(said)) == 1
    await stable.close()


async def test_one_that_the_provider_shows_as_going_is_a_loss_too(stable: Stable) -> None:
    """A plugin may say `deleting` of what its provider ends: nobody here had asked for that either."""
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
    assert losses.of == [("", "replaced")]


async def test_what_is_done_here_or_by_hand_is_no_rebalancing(stable: Stable) -> None:
    """Scaling up and down, machines that somebody adds, and a plugin that shows nothing for a while."""
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
