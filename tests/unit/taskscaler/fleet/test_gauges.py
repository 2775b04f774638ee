"""What a running scaler tells whoever counts: machines by use, why there are no more, and how creations fail."""

from pathlib import Path

import pytest

from remuda.fleeting import PermanentError, TemporaryError
from remuda.fleeting.port import InstanceState
from remuda.taskscaler.fleet.setup import Gauges, GroupGauges, NoMetrics
from remuda.testing.scalers import OWNER, Stable


class Counts(NoMetrics):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.last: Gauges | None = None
        self.failed: list[tuple[str, str, float | None, int]] = []
        self.boots: list[tuple[str, float]] = []

    def set_gauges(self, gauges: Gauges) -> None:
        self.last = gauges

    def count_failed_creation(self, group: str, cause: str, seconds: float | None = None, count: int = 1) -> None:
        self.failed.append((group, cause, seconds, count))

    def observe_boot(self, group: str, seconds: float) -> None:
        self.boots.append((group, seconds))

    @property
    def causes(self) -> set[str]:
        return {cause for _, cause, _, _ in self.failed}

    def group(self, name: str = "") -> GroupGauges:
        assert self.last is not None
        return self.last.groups[name]


def counted(stable: Stable) -> Counts:
    stable.metrics = counts = Counts()
    return counts


async def test_machines_are_told_by_use(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "one", "two", max_instances=3, capacity_per_instance=2)
    counts = counted(stable)
    stable.policy(idle_count=2, idle_seconds=60.0)
    await stable.start()
    await stable.run(10)
    assert counts.group("one").machines["creating"] == 1
    assert counts.last is not None
    assert counts.last.may_grow
    await stable.acquire("a")
    await stable.run(60)
    assert counts.group("one").machines == {"creating": 0, "idle": 1, "busy": 1, "unavailable": 0, "removing": 0}
    assert [(group, seconds >= 30.0) for group, seconds in counts.boots] == [("one", True)] * 2
    assert counts.group("two").machines == dict.fromkeys(counts.group("two").machines, 0)
    assert counts.group("one").is_well
    assert counts.group("one").plugin_starts == 1
    stable.release("a")
    stable.policy(idle_count=0, idle_seconds=0.0)
    stable.clouds["one"].delete_seconds = 3600.0
    await stable.run(10)
    assert counts.group("one").machines["removing"] == 2
    assert counts.group("one").stuck == 0
    await stable.run(120)
    assert counts.group("one").stuck == 2
    await stable.close()


async def test_others_machines_are_not_ours_to_pay(stable: Stable) -> None:
    counts = counted(stable)
    stable.cloud.make(2, "s_else/1")
    stable.cloud.make(1, OWNER)
    await stable.start()
    await stable.run(60)
    assert sum(counts.group().machines.values()) == 1


async def test_why_there_are_no_more_is_told_until_there_are(tmp_path: Path) -> None:
    stable = Stable(tmp_path, max_instances=2)
    counts = counted(stable)
    stable.policy(idle_count=5, idle_seconds=600.0)
    await stable.start()
    await stable.run(60)
    assert {reason: count for reason, count in counts.group().hindered.items() if count} == {"max_instances": 3}
    assert counts.last is not None
    assert not counts.last.may_grow
    stable.policy(idle_count=2, idle_seconds=600.0)
    await stable.run(10)
    assert not any(counts.group().hindered.values())
    stable.cloud.broken["update"] = TemporaryError("the provider is away")
    stable.policy(idle_count=3, idle_seconds=600.0)
    await stable.run(120)
    assert not counts.group().is_well
    await stable.close()


async def test_creations_that_fail_are_told_with_their_cause(tmp_path: Path) -> None:
    stable = Stable(tmp_path, boot_seconds=30.0, creation_seconds=300.0, delivery_seconds=100.0)
    counts = counted(stable)
    stable.policy(idle_count=1, idle_seconds=600.0)
    cloud, mechanic = stable.cloud, stable.mechanic

    async def fail(cause: str) -> None:
        for _ in range(200):
            if cause in counts.causes:
                return
            await stable.run(5)
        raise AssertionError(f"{cause}: {counts.failed}")

    cloud.broken["increase"] = TemporaryError("no")
    await stable.start()
    await fail("refused")
    assert counts.failed[0][3] == 1
    del cloud.broken["increase"]
    mechanic.broken["*"] = PermanentError("the key is wrong")
    await fail("unprepared")
    mechanic.broken.clear()
    mechanic.broken["*"] = TemporaryError("not yet")
    await fail("stuck")
    mechanic.broken.clear()
    cloud.boot_seconds = 10_000.0
    while "lost" not in counts.causes:
        for one in [name for name, state in cloud.list_instances().items() if state is InstanceState.CREATING]:
            cloud.lose(one)
        await stable.run(5)
    cloud.shows = False
    await fail("undelivered")
    assert all(seconds is None or seconds >= 0 for _, _, seconds, _ in counts.failed)
    await stable.close()


async def test_a_group_that_gives_fewer_has_refused_the_rest(stable: Stable) -> None:
    counts = counted(stable)
    stable.cloud.accepts = 2
    stable.policy(idle_count=5, idle_seconds=600.0)
    await stable.start()
    await stable.run(5)
    assert counts.failed[0] == ("", "refused", None, 3)


async def test_a_clock_that_is_set_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stable = Stable(tmp_path)
    counts = counted(stable)
    await stable.start()
    await stable.run(5)
    assert counts.last is not None
    before = counts.last.at
    real = stable.clock.now
    monkeypatch.setattr(stable.clock, "now", lambda: real() + 3600.0)
    await stable.run(120)
    assert 60.0 < counts.last.at - before < 300.0
