"""Metrics of a running scaler: machines by use, reasons why there are no more, and causes of failed creations."""

from pathlib import Path

import pytest

from remuda.fleeting import PermanentError, TemporaryError
from remuda.fleeting.port import InstanceState
from remuda.taskscaler.fleet.setup import Gauges, GroupGauges, NoMetrics
from remuda.testing.scalers import OWNER, Stable


class Counts(NoMetrics):
    """Records the metrics."""

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


def record_metrics(stable: Stable) -> Counts:
    stable.metrics = counts = Counts()
    return counts


async def test_machines_are_counted_by_use(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "one", "two", max_instances=3, capacity_per_instance=2)
    counts = record_metrics(stable)
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


async def test_foreign_machines_are_not_counted(stable: Stable) -> None:
    counts = record_metrics(stable)
    stable.cloud.make(2, "s_else/1")
    stable.cloud.make(1, OWNER)
    await stable.start()
    await stable.run(60)
    assert sum(counts.group().machines.values()) == 1


async def test_the_reason_for_missing_machines_is_reported_while_it_lasts(tmp_path: Path) -> None:
    stable = Stable(tmp_path, max_instances=2)
    counts = record_metrics(stable)
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


async def test_failed_creations_are_counted_by_cause(tmp_path: Path) -> None:
    stable = Stable(tmp_path, boot_seconds=30.0, creation_seconds=300.0, delivery_seconds=100.0)
    counts = record_metrics(stable)
    stable.policy(idle_count=1, idle_seconds=600.0)
    cloud, mechanic = stable.cloud, stable.mechanic

    async def wait_for_failure(cause: str) -> None:
        for _ in range(200):
            if cause in counts.causes:
                return
            await stable.run(5)
        raise AssertionError(f"{cause}: {counts.failed}")

    cloud.broken["increase"] = TemporaryError("no")
    await stable.start()
    await wait_for_failure("refused")
    assert counts.failed[0][3] == 1
    del cloud.broken["increase"]
    mechanic.broken["*"] = PermanentError("the key is wrong")
    await wait_for_failure("unprepared")
    mechanic.broken.clear()
    mechanic.broken["*"] = TemporaryError("not yet")
    await wait_for_failure("stuck")
    mechanic.broken.clear()
    cloud.boot_seconds = 10_000.0
    while "lost" not in counts.causes:
        for instance in [name for name, state in cloud.list_instances().items() if state is InstanceState.CREATING]:
            cloud.lose(instance)
        await stable.run(5)
    cloud.shows = False
    await wait_for_failure("undelivered")
    assert all(seconds is None or seconds >= 0 for _, _, seconds, _ in counts.failed)
    await stable.close()


async def test_a_group_that_accepts_fewer_has_refused_the_rest(stable: Stable) -> None:
    counts = record_metrics(stable)
    stable.cloud.accepts = 2
    stable.policy(idle_count=5, idle_seconds=600.0)
    await stable.start()
    await stable.run(5)
    assert counts.failed[0] == ("", "refused", None, 3)


async def test_wall_clock_jump_does_not_affect_the_gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stable = Stable(tmp_path)
    counts = record_metrics(stable)
    await stable.start()
    await stable.run(5)
    assert counts.last is not None
    before = counts.last.at
    real = stable.clock.now
    monkeypatch.setattr(stable.clock, "now", lambda: real() + 3600.0)
    await stable.run(120)
    assert 60.0 < counts.last.at - before < 300.0
