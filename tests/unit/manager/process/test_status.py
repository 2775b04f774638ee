"""The status of machines and fleets, and the health of a runner."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from remuda.fleeting import InProcess
from remuda.lib.clock import SystemClock
from remuda.manager.config.autoscaler import AutoscalerConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.poll_pace import Health
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.environments.port import Environment
from remuda.manager.environments.scaled import Scaled
from remuda.manager.jobs.link import AgentLink
from remuda.manager.process.status import fleet_of, health_of, machines_of
from remuda.taskscaler.fleet.status import GroupStatus, InstanceStatus, ScalerStatus
from remuda.testing.environment import FakeEnvironment
from remuda.testing.instance_groups import PlainGroup


def a_group(
    name: str = "local", *, error: str = "", is_current: bool = True, failures: int = 0, starting: float | None = None
) -> GroupStatus:
    return GroupStatus(
        name=name,
        plugin="",
        is_current=is_current,
        error=error,
        note="",
        failures=failures,
        starting_seconds=starting,
        failed_at=0.0,
        boot_seconds=0.0,
        boots=0,
        max_instances=0,
        quota=None,
        updated_at=0.0,
    )


def an_instance(name: str, state: str) -> InstanceStatus:
    return InstanceStatus(
        name=name,
        id=name,
        group="local",
        state=state,
        provider_state="running",
        since=0.0,
        slots_used=0,
        capacity=1,
        uses=0,
        created_at=0.0,
        idle_since=None,
        cause="",
        address="",
        owner="",
        failures=0,
        error="",
        holders=(),
    )


def a_fleet(*groups: GroupStatus, instances: Mapping[str, str] | None = None) -> ScalerStatus:
    """`instances` maps names to states."""
    return ScalerStatus(
        name="fleet",
        owner="s_1/fleet",
        at=0.0,
        held=0,
        waiting=0,
        reserved=0,
        capacity=0,
        instances=tuple(an_instance(name, state) for name, state in (instances or {}).items()),
        requests=(),
        groups=groups,
        plan=None,
        explanation="",
        decisions=(),
    )


class _Fleet(AutoscaledEnvironment):
    """An environment that never runs; its status has the given instances."""

    def __init__(self, folder: Path, instances: Mapping[str, str]) -> None:
        runner = RunnerConfig(name="bench", executor="instance", autoscaler=AutoscalerConfig(plugin="table"))
        super().__init__(
            runner, folder=folder, system_id="s_1", clock=SystemClock(), plugins=lambda _: InProcess(PlainGroup())
        )
        self._status = a_fleet(instances=instances)

    def status(self) -> ScalerStatus:
        return self._status


@pytest.mark.parametrize(
    ("health", "fleet", "expected"),
    [
        (Health.WELL, None, "well"),
        (Health.WELL, a_fleet(a_group()), "well"),
        (Health.WELL, a_fleet(a_group(is_current=False)), "well"),  # not started yet
        (Health.WELL, a_fleet(a_group(error="no such plugin", is_current=False)), "troubled"),
        (Health.WELL, a_fleet(a_group(error="quota")), "well"),
        (Health.WELL, a_fleet(a_group(error="gone", is_current=False), a_group("other")), "well"),
        (Health.WELL, a_fleet(a_group(error="quota", failures=3)), "troubled"),
        (Health.WELL, a_fleet(a_group(error="quota", failures=3), instances={"local/a": "ready"}), "well"),
        (Health.REFUSED, a_fleet(a_group(error="gone", is_current=False)), "refused"),
    ],
)
def test_health_of_a_runner_with_a_fleet(health: Health, fleet: ScalerStatus | None, expected: str) -> None:
    assert health_of(health, fleet) == expected


def test_a_plugin_that_takes_long_to_start_is_a_problem() -> None:
    slow, quick = a_fleet(a_group(starting=18.0)), a_fleet(a_group(starting=2.0))
    assert fleet_of(RunnerConfig(), slow).problems == ("local: its plugin is starting, 18 s so far",)
    assert fleet_of(RunnerConfig(), quick).problems == ()


async def test_a_machine_is_shown_once_by_the_fleet_that_owns_it(tmp_path: Path) -> None:
    """After a runner was renamed, two fleets see the same machines. Links outlive their machines for some time."""
    old = _Fleet(tmp_path / "old", {"local/a": "ready"})
    new = _Fleet(tmp_path / "new", {"local/a": "foreign", "local/b": "ready"})
    plain = FakeEnvironment(tmp_path)
    assert isinstance(old, Scaled)
    links = [
        AgentLink(cast("Environment", environment), machine, SystemClock())
        for environment, machine in (
            (new, "local/a"),
            (old, "local/a"),
            (new, "local/b"),
            (old, "local/gone"),
            (new, "local/lost"),
            (plain, "local"),
        )
    ]
    machines = machines_of(links, {(id(old), "local/a"): 2, (id(new), "local/lost"): 1})
    assert [(machine.machine, machine.jobs) for machine in machines] == [
        ("local", 0),
        ("local/a", 2),
        ("local/b", 0),
        ("local/lost", 1),
    ]
    for environment in (old, new):
        await environment.close()
    await plain.remove()
