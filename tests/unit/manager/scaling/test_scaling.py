"""Fleets as the supervisor sees them: those that end, and those that are drained."""

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
    """One fleet that a supervisor runs; its machines never come so far that somebody logs in to them."""

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
        self.environment = self.made(self.runner)
        self.scaling = Scaling(lambda name, work: asyncio.create_task(work(), name=name))  # type: ignore[arg-type]
        environments = Environments(
            lambda _runner, _around: self.environment, identity, EnvironmentContext(folder=folder)
        )
        self.left = OrphanedMachines(
            folder,
            scaling=self.scaling,
            plugins=lambda _: InProcess(CloudGroup(self.cloud)),
            block=environments.block,
            clock=self.clock,
        )
        self.scaling.fleets = [(self.runner, self.environment)]

    def made(self, runner: RunnerConfig) -> AutoscaledEnvironment:
        return AutoscaledEnvironment(
            runner,
            folder=self.folder,
            system_id="s_1",
            clock=self.clock,
            plugins=lambda _: InProcess(CloudGroup(self.cloud)),
        )

    def begin(self) -> None:
        self.scaling.follow([self.environment])

    def serve(self, *runners: RunnerConfig) -> None:
        """These are configured now."""
        client: Any = None
        served = [ServedRunner(one, client, self.environment) for one in runners]
        self.scaling.serve(served, Room(concurrent=2, limits={}))

    async def run(self, seconds: float) -> None:
        while seconds > 0:
            await self.clock.advance(0.5)
            await settle(50)
            await asyncio.sleep(0.001)  # the state is written in a thread
            seconds -= 0.5

    async def explained(self) -> ScaleReport:
        found = await scale_commands(self.scaling, self.left)["scale"](Command(command="scale"))
        assert isinstance(found, ScaleReport)
        return found

    async def close(self, environment: AutoscaledEnvironment | None = None) -> None:
        closing = asyncio.create_task((environment or self.environment).close(), name="close")
        while not closing.done():
            await self.run(0.5)
        await closing


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_fleet_whose_runner_is_gone_is_seen_until_it_has_ended(site: Site) -> None:
    site.begin()
    await site.run(5)
    assert len(site.cloud.list_instances()) == 2
    assert [one.is_ending for one in (await site.explained()).fleets] == [False]
    site.serve()
    await site.run(1)
    (fleet,) = (await site.explained()).fleets
    assert (fleet.name, fleet.is_ending, len(fleet.status.instances)) == ("builder", True, 2)
    site.scaling.discard(site.environment)
    site.scaling.follow([])
    assert site.scaling.owners == {site.environment.setup.owner}
    assert [one.runner.name for one in site.scaling.ending] == ["builder"]
    await site.close()
    assert site.scaling.ending == []
    assert site.cloud.list_instances() == {}


async def test_machines_that_come_for_nobody_go_with_their_runner_at_once(site: Site) -> None:
    site.begin()
    await site.run(5)
    site.scaling.drain()
    await site.run(5)
    assert len(site.environment.status().instances) == 2
    site.serve()
    await site.run(15)
    assert site.cloud.list_instances() == {}
    site.scaling.follow([])
    await site.close()


async def test_a_runner_that_only_ends_its_jobs_keeps_no_idle_machines_until_it_comes_back(site: Site) -> None:
    site.begin()
    await site.run(5)
    site.serve()
    await site.run(1)
    assert "none idle are wanted" in (await site.explained()).fleets[0].status.explanation
    site.serve(site.runner)
    await site.run(1)
    (fleet,) = (await site.explained()).fleets
    assert (fleet.is_ending, "none idle are wanted" in fleet.status.explanation) == (False, False)
    site.scaling.follow([])
    await site.close()


async def test_a_manager_that_drains_keeps_no_idle_machines(site: Site) -> None:
    site.scaling.drain()
    site.begin()
    await site.run(10)
    assert site.cloud.made == 0
    assert "no more jobs are asked for" in (await site.explained()).fleets[0].status.explanation
    site.scaling.follow([])
    await site.close()


async def test_a_plugin_that_hangs_at_its_start_is_said_to_be_starting(site: Site) -> None:
    site.cloud.hung.add("init")
    site.begin()
    await site.run(12)
    (group,) = (await site.explained()).fleets[0].status.groups
    assert group.starting_seconds == pytest.approx(12, abs=1)
    swept = await scale_commands(site.scaling, site.left)["sweep"](Command(command="sweep"))
    assert isinstance(swept, SweepReport)
    assert swept.problems[0].startswith("builder: group cloud: its plugin is starting, 1")
    site.scaling.follow([])
    await site.close()


async def test_what_a_sweep_has_removed_is_looked_at_at_once(site: Site) -> None:
    foreign = site.cloud.make(1, "s_1/gone-name")
    site.cloud.machines[foreign[0]].created_at -= 3600.0
    site.begin()
    await site.run(5)
    states = {one.id: one.state for one in (await site.explained()).fleets[0].status.instances}
    assert states[foreign[0]] == "foreign"
    site.cloud.delete_seconds = 0.0
    sweeping = scale_commands(site.scaling, site.left)["sweep"](Command(command="sweep", remove=True))
    task = asyncio.ensure_future(sweeping)
    while not task.done():
        await site.run(0.5)
    await site.run(8)
    assert foreign[0] not in {one.id for one in (await site.explained()).fleets[0].status.instances}
    site.scaling.follow([])
    await site.close()


async def test_others_look_at_once_when_a_fleet_has_ended(site: Site) -> None:
    """Its machines take up places of theirs until they see that those are gone."""
    renamed = msgspec.structs.replace(site.runner, name="renamed", autoscaler=AutoscalerConfig(plugin="cloud"))
    other = site.made(renamed)
    site.begin()
    await site.run(5)
    site.scaling.fleets = [(renamed, other)]
    site.scaling.follow([site.environment, other])
    await site.run(10)
    site.scaling.discard(site.environment)
    site.scaling.follow([other])
    await site.close()
    assert {one.state for one in other.status().instances} == {"foreign"}
    site.scaling.follow([other])
    await site.run(8)
    assert other.status().instances == ()
    site.scaling.follow([])
    await site.close(other)


async def test_a_sweep_says_of_a_fleet_that_ends_that_its_machines_go(site: Site) -> None:
    site.begin()
    await site.run(5)
    site.serve()
    for name in ("", "builder"):
        swept = await scale_commands(site.scaling, site.left)["sweep"](Command(command="sweep", runner=name))
        assert isinstance(swept, SweepReport)
        assert swept.remarks == ("builder is not configured any more: its machines go when their jobs are over",)
        assert not swept.orphans
    site.scaling.follow([])
    await site.close()
