"""Fleets during the life of a manager: fleets that end, drained fleets, and the commands `scale` and `sweep`."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.fleeting import InProcess
from remuda.lib.clock import VirtualClock, settle
from remuda.manager.config.autoscaler import AutoscalerConfig, AutoscalerPolicy
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.environments.kinds import EnvironmentContext, Environments, identity
from remuda.manager.jobs.runners import ServedRunner
from remuda.manager.polling.room import Room
from remuda.manager.process.control import Command
from remuda.manager.process.scale_commands import ScaleReport, SweepReport, scale_commands
from remuda.manager.scaling.orphaned_machines import OrphanedMachines
from remuda.manager.scaling.scaling import Scaling
from remuda.testing.scalers import Cloud, CloudGroup


class Site:
    """A running fleet. Its machines never finish booting, so no login is tried."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.cloud = Cloud(self.clock, boot_seconds=1e9)
        self.runner = RunnerConfig(
            name="builder",
            url="http://cell.invalid",
            executor="instance",
            autoscaler=AutoscalerConfig(plugin="cloud", policy=(AutoscalerPolicy(idle_count=2, idle_time="1m"),)),
        )
        self.folder = folder
        self.environment = self.create_environment(self.runner)
        self.scaling = Scaling(lambda name, work: asyncio.create_task(work(), name=name))  # type: ignore[arg-type]
        environments = Environments(
            lambda _runner, _around: self.environment, identity, EnvironmentContext(folder=folder)
        )
        self.orphaned = OrphanedMachines(
            folder,
            scaling=self.scaling,
            plugins=lambda _: InProcess(CloudGroup(self.cloud)),
            block=environments.block,
            clock=self.clock,
        )
        self.scaling.fleets = [(self.runner, self.environment)]

    def create_environment(self, runner: RunnerConfig) -> AutoscaledEnvironment:
        return AutoscaledEnvironment(
            runner,
            folder=self.folder,
            system_id="s_1",
            clock=self.clock,
            plugins=lambda _: InProcess(CloudGroup(self.cloud)),
        )

    def start(self) -> None:
        self.scaling.follow([self.environment])

    def serve(self, *runners: RunnerConfig) -> None:
        """Set the configured runners."""
        client: Any = None
        served = [ServedRunner(runner, client, self.environment) for runner in runners]
        self.scaling.serve(served, Room(concurrent=2, limits={}))

    async def run(self, seconds: float) -> None:
        while seconds > 0:
            await self.clock.advance(0.5)
            await settle(50)
            await asyncio.sleep(0.001)  # the state is written in a thread
            seconds -= 0.5

    async def report(self) -> ScaleReport:
        report = await scale_commands(self.scaling, self.orphaned)["scale"](Command(command="scale"))
        assert isinstance(report, ScaleReport)
        return report

    async def close(self, environment: AutoscaledEnvironment | None = None) -> None:
        closing = asyncio.create_task((environment or self.environment).close(), name="close")
        while not closing.done():
            await self.run(0.5)
        await closing


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_fleet_of_a_removed_runner_is_shown_until_it_has_ended(site: Site) -> None:
    site.start()
    await site.run(5)
    assert len(site.cloud.list_instances()) == 2
    assert [fleet.is_ending for fleet in (await site.report()).fleets] == [False]
    site.serve()
    await site.run(1)
    (fleet,) = (await site.report()).fleets
    assert (fleet.name, fleet.is_ending, len(fleet.status.instances)) == ("builder", True, 2)
    site.scaling.discard(site.environment)
    site.scaling.follow([])
    assert site.scaling.owners == {site.environment.setup.owner}
    assert [fleet.runner.name for fleet in site.scaling.ending] == ["builder"]
    await site.close()
    assert site.scaling.ending == []
    assert site.cloud.list_instances() == {}


async def test_machines_without_jobs_are_removed_with_their_runner_at_once(site: Site) -> None:
    site.start()
    await site.run(5)
    site.scaling.drain()
    await site.run(5)
    assert len(site.environment.status().instances) == 2
    site.serve()
    await site.run(15)
    assert site.cloud.list_instances() == {}
    site.scaling.follow([])
    await site.close()


async def test_a_removed_runner_keeps_no_idle_machines_until_it_is_configured_again(site: Site) -> None:
    site.start()
    await site.run(5)
    site.serve()
    await site.run(1)
    assert "no idle slots are wanted" in (await site.report()).fleets[0].status.explanation
    site.serve(site.runner)
    await site.run(1)
    (fleet,) = (await site.report()).fleets
    assert (fleet.is_ending, "no idle slots are wanted" in fleet.status.explanation) == (False, False)
    site.scaling.follow([])
    await site.close()


async def test_a_manager_that_drains_keeps_no_idle_machines(site: Site) -> None:
    site.scaling.drain()
    site.start()
    await site.run(10)
    assert site.cloud.made == 0
    assert "no more jobs are requested" in (await site.report()).fleets[0].status.explanation
    site.scaling.follow([])
    await site.close()


async def test_a_plugin_that_hangs_at_its_start_is_reported_as_starting(site: Site) -> None:
    site.cloud.hung.add("init")
    site.start()
    await site.run(12)
    (group,) = (await site.report()).fleets[0].status.groups
    assert group.starting_seconds == pytest.approx(12, abs=1)
    sweep_report = await scale_commands(site.scaling, site.orphaned)["sweep"](Command(command="sweep"))
    assert isinstance(sweep_report, SweepReport)
    assert sweep_report.problems[0].startswith("builder: group cloud: its plugin is starting, 1")
    site.scaling.follow([])
    await site.close()


async def test_fleets_refresh_at_once_after_a_sweep(site: Site) -> None:
    foreign = site.cloud.make(1, "s_1/gone-name")
    site.cloud.machines[foreign[0]].created_at -= 3600.0
    site.start()
    await site.run(5)
    states = {instance.id: instance.state for instance in (await site.report()).fleets[0].status.instances}
    assert states[foreign[0]] == "foreign"
    site.cloud.delete_seconds = 0.0
    sweeping = scale_commands(site.scaling, site.orphaned)["sweep"](Command(command="sweep", remove=True))
    task = asyncio.ensure_future(sweeping)
    while not task.done():
        await site.run(0.5)
    await site.run(8)
    assert foreign[0] not in {instance.id for instance in (await site.report()).fleets[0].status.instances}
    site.scaling.follow([])
    await site.close()


async def test_other_fleets_refresh_at_once_when_a_fleet_has_ended(site: Site) -> None:
    """Its machines count against their limits until they see that those are gone."""
    renamed = msgspec.structs.replace(site.runner, name="renamed", autoscaler=AutoscalerConfig(plugin="cloud"))
    other = site.create_environment(renamed)
    site.start()
    await site.run(5)
    site.scaling.fleets = [(renamed, other)]
    site.scaling.follow([site.environment, other])
    await site.run(10)
    # Not after the end of the first fleet: how much time that takes on the test's clock depends on a thread.
    assert {instance.state for instance in other.status().instances} == {"foreign"}
    site.scaling.discard(site.environment)
    site.scaling.follow([other])
    await site.close()
    site.scaling.follow([other])
    await site.run(8)
    assert other.status().instances == ()
    site.scaling.follow([])
    await site.close(other)


async def test_a_sweep_reports_that_an_ending_fleet_removes_its_machines(site: Site) -> None:
    site.start()
    await site.run(5)
    site.serve()
    for name in ("", "builder"):
        sweep_report = await scale_commands(site.scaling, site.orphaned)["sweep"](Command(command="sweep", runner=name))
        assert isinstance(sweep_report, SweepReport)
        assert sweep_report.remarks == ("builder is not configured any more: its machines go when their jobs are over",)
        assert not sweep_report.orphans
    site.scaling.follow([])
    await site.close()
