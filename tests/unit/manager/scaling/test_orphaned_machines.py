"""Machines of runners that are not configured any more: told of, found, removed, and forgotten."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from remuda.fleeting import InProcess, InstanceGroup, TemporaryError
from remuda.lib.clock import VirtualClock, settle
from remuda.manager.config.autoscaler import AutoscalerConfig, ConnectorConfig
from remuda.manager.config.fleet_setup import host_key_path
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.autoscaled import AutoscaledEnvironment
from remuda.manager.environments.fleet_record import unattended_groups
from remuda.manager.environments.kinds import EnvironmentContext, Environments, identity
from remuda.manager.errors import ClosingError, ManagerError
from remuda.manager.process.control import Command
from remuda.manager.process.scale_commands import SweepReport, scale_commands
from remuda.manager.scaling.orphaned_machines import OrphanedMachines
from remuda.manager.scaling.scaling import Scaling
from remuda.taskscaler.fleet.requests import PendingRequest, Phase
from remuda.taskscaler.fleet.setup import NoMetrics, ScalerMetrics
from remuda.taskscaler.fleet.stored_values import Changes, Stored, StoredInstance
from remuda.taskscaler.loop.state import StateFile, state_path
from remuda.testing.logs import capture_logs
from remuda.testing.scalers import Cloud, CloudGroup

SYSTEM = "s_1"


def a_runner(name: str = "builder", **autoscaler: object) -> RunnerConfig:
    login = ConnectorConfig(username="ci", password="secret")
    told = {"plugin": "cloud", "plugin_config": {"anything": "eu-1"}, "connector_config": login} | autoscaler
    return RunnerConfig(
        name=name,
        url="http://cell.invalid",
        executor="instance",
        autoscaler=AutoscalerConfig(**told),  # type: ignore[arg-type]
    )


class Site:
    """A manager's folder and parts, without the manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.cloud = Cloud(self.clock, boot_seconds=1e9, delete_seconds=5.0)
        self.asked: list[str] = []
        self.scaling = Scaling(lambda name, work: asyncio.create_task(work(), name=name))  # type: ignore[arg-type]
        self.environments = Environments(
            lambda runner, _: self.environment(runner), identity, EnvironmentContext(folder=folder)
        )
        self.left = OrphanedMachines(
            folder,
            scaling=self.scaling,
            plugins=self.plugin,
            block=self.environments.block,
            clock=self.clock,
        )

    def plugin(self, plugin: str) -> InstanceGroup:
        self.asked.append(plugin)
        return InProcess(CloudGroup(self.cloud))

    def environment(self, runner: RunnerConfig, told: ScalerMetrics | None = None) -> AutoscaledEnvironment:
        return AutoscaledEnvironment(
            runner,
            folder=self.folder,
            system_id=SYSTEM,
            clock=self.clock,
            plugins=self.plugin,
            counts=lambda _: told or NoMetrics(),
        )

    async def of_a_dead_manager(self, runner: RunnerConfig, *, machines: int = 2) -> list[str]:
        """A fleet with machines whose process was killed."""
        environment = self.environment(runner)
        made = self.cloud.make(machines, environment.setup.owner)
        file = StateFile(state_path(self.folder, environment.setup.name))
        group = environment.setup.groups[0].name
        owner = environment.setup.owner
        await file.write(
            Changes(instances={f"{group}/{one}": StoredInstance(id=one, group=group, owner=owner) for one in made})
        )
        file.close()
        self.asked.clear()
        return made

    async def sweep(self, *, remove: bool = False, runner: str = "") -> SweepReport:
        order = Command(command="sweep", runner=runner, remove=remove)
        work = scale_commands(self.scaling, self.left)["sweep"](order)
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.clock.advance(0.5)
            await settle(50)
            await asyncio.sleep(0.001)  # files are read in threads
        report = task.result()
        assert isinstance(report, SweepReport)
        return report


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "machines").mkdir()
    return Site(tmp_path / "machines")


async def test_machines_of_a_runner_that_is_gone_are_told_of_at_the_start(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    with capture_logs() as said:
        await site.left.report()
    (line,) = said
    assert line["log_level"] == "warning"
    assert line["machines"] == [f"cloud/{one}" for one in made]
    assert (line["runner"], line["file"].startswith(str(site.folder))) == ("builder", True)
    assert "remuda scale sweep --remove" in line["what_to_do"]


async def test_they_are_shown_first_and_removed_when_asked_to(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    shown = await site.sweep()
    assert [one.instance for one in shown.orphans] == made
    assert not any(one.is_removed for one in shown.orphans)
    assert (len(site.cloud.list_instances()), site.asked) == (2, ["cloud"])
    report = await site.sweep(remove=True)
    assert all(one.is_removed for one in report.orphans)
    assert (report.problems, report.remarks) == ((), ())
    assert site.cloud.list_instances() == {}
    assert list(site.folder.iterdir()) == []
    assert await site.left.find() == []
    with capture_logs() as said:
        await site.left.report()
    assert said == []


async def test_the_keys_that_they_showed_go_with_them(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    files = [host_key_path(site.folder, name) for name in (f"cloud/{made[0]}", "cloud/another")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text("a key")
    await site.sweep()
    assert [file.exists() for file in files] == [True, True]
    await site.sweep(remove=True)
    assert [file.exists() for file in files] == [False, True]


async def test_what_is_kept_is_for_this_user_only_and_what_the_plugin_was_told(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key")
    login = ConnectorConfig(username="ci", key_path=str(tmp_path / "key"))
    await site.of_a_dead_manager(a_runner(connector_config=login))
    (tmp_path / "key").unlink()
    (file,) = site.folder.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    (left,) = await site.left.find()
    kept = left.record.groups["cloud"]
    assert (kept.plugin, kept.config, kept.login) == ("cloud", {"anything": "eu-1"}, login)
    assert "a key" not in file.read_text()
    assert len((await site.sweep()).orphans) == 2  # without the key, too


async def test_what_is_gone_already_is_said_and_forgotten(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    site.cloud.machines.clear()
    report = await site.sweep()
    assert report.orphans == ()
    assert [f"cloud/{one} is gone" in text for one, text in zip(made, report.remarks, strict=True)] == [True, True]
    assert len(await site.left.find()) == 1
    await site.sweep(remove=True)
    assert await site.left.find() == []


async def test_a_provider_that_does_not_answer_costs_nothing(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    site.cloud.broken["update"] = TemporaryError("come back later")
    report = await site.sweep(remove=True)
    assert report.problems[0].endswith("group cloud: come back later")
    site.cloud.broken.clear()
    assert [one.instance for one in (await site.sweep(remove=True)).orphans] == made


async def test_machines_whose_settings_nobody_kept_are_said_with_what_to_do(site: Site) -> None:
    """As those of a version that did not keep them."""
    await site.of_a_dead_manager(a_runner())
    for file in site.folder.glob("*.json"):
        file.unlink()
    report = await site.sweep(remove=True)
    assert "put the runner's section back" in report.problems[0]
    assert report.problems[0].count("builder-") == 1
    assert len(site.cloud.list_instances()) == 2
    with capture_logs() as said:
        await site.left.report()
    assert "put the runner's section back" in said[0]["what_to_do"]


async def test_a_runner_cannot_come_back_while_its_machines_are_removed(site: Site) -> None:
    await site.of_a_dead_manager(a_runner())
    site.cloud.delete_seconds = 20.0
    sweeping = asyncio.create_task(site.sweep(remove=True), name="sweep")
    while "decrease" not in site.cloud.calls:  # noqa: ASYNC110 - by virtual time
        await asyncio.sleep(0.001)
    with pytest.raises(ClosingError):
        site.environments.of(a_runner())
    await sweeping
    environment = site.environments.of(a_runner())
    await environment.close()


async def test_a_runner_that_is_there_leaves_nothing(site: Site) -> None:
    await site.of_a_dead_manager(a_runner())
    environment = site.environment(a_runner())
    site.scaling.fleets = [(a_runner(), environment)]
    assert await site.left.find() == []
    await environment.close()


async def test_the_group_of_a_plugin_that_was_changed_is_left(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    environment = site.environment(a_runner(plugin="other", plugin_config={}))
    site.scaling.fleets = [(a_runner(), environment)]
    (left,) = await site.left.find()
    assert left.groups == {"cloud": tuple(made)}
    await site.left.sweep(left, remove=False)
    work = asyncio.create_task(site.left.sweep(left, remove=True), name="sweep")
    while not work.done():
        await site.clock.advance(0.5)
        await asyncio.sleep(0.001)
    swept, _ = await work
    assert list(swept.removed) == made
    assert await site.left.find() == []
    assert state_path(site.folder, environment.setup.name).exists()
    await environment.close()


async def test_what_a_plugin_was_asked_for_that_was_changed_then_may_still_come(site: Site) -> None:
    runner = a_runner()
    await site.of_a_dead_manager(runner, machines=1)
    site.cloud.machines.clear()
    (left,) = await site.left.find()
    state = StateFile(left.file)
    asked = PendingRequest(number=7, group="cloud", count=1, asked_at=0.0, phase=Phase.SENDING)
    await state.write(Changes(instances=dict.fromkeys(left.machines), requests={7: asked}))
    state.close()
    environment = site.environment(a_runner(plugin="other", plugin_config={}))
    site.scaling.follow([environment])
    while environment.status().plan is None:
        await site.clock.advance(0.5)
        await settle(50)
    site.scaling.follow([])
    await environment.close()
    site.scaling.fleets = [(runner, environment)]
    (left,) = await site.left.find()
    assert left.groups == {"cloud": ()}
    late = site.cloud.make(1, environment.setup.owner)
    swept, _ = await site.left.sweep(left, remove=False)
    assert [one.instance for one in swept.found] == late


async def test_what_the_next_runner_has_taken_over_is_not_removed(site: Site) -> None:
    """A plugin that cannot tag: after a change of its name the runner uses the machines it had as before."""
    made = await site.of_a_dead_manager(a_runner("old"))
    for one in site.cloud.machines.values():
        one.owner = ""
    environment = site.environment(a_runner("new"))
    site.scaling.follow([environment])
    while len(environment.status().instances) < 2:
        await site.clock.advance(0.5)
        await settle(50)
    site.scaling.fleets = [(a_runner("new"), environment)]
    report = await site.sweep(remove=True, runner="old")
    assert report.orphans == ()
    assert site.cloud.list_instances().keys() == set(made)
    site.scaling.follow([])
    await environment.close()


async def test_nothing_is_removed_before_a_runner_with_the_same_plugin_has_seen_what_is_its_own(site: Site) -> None:
    """It may have given a machine a job, where a plugin cannot tag, a moment after nobody seemed to have it."""
    made = await site.of_a_dead_manager(a_runner("old"))
    for one in site.cloud.machines.values():
        one.owner = ""
    environment = site.environment(a_runner("new"))
    site.scaling.fleets = [(a_runner("new"), environment)]
    report = await site.sweep(remove=True, runner="old")
    assert "new has the same plugin and has not listed its machines yet" in report.problems[0]
    assert site.cloud.list_instances().keys() == set(made)
    assert len((await site.sweep(runner="old")).orphans) == 2
    await environment.close()


async def test_what_came_of_a_request_and_does_not_go_is_not_forgotten(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    (late,) = site.cloud.make(1, f"{SYSTEM}/{(await site.left.find())[0].name}")
    site.cloud.machines.pop(made[0])
    site.cloud.machines.pop(made[1])
    site.cloud.delete_seconds = 3600.0
    report = await site.sweep(remove=True)
    assert [one.instance for one in report.orphans] == [late]
    assert len(list(site.folder.glob("*.json"))) == 1


async def test_a_fleet_that_ends_in_order_leaves_no_file_and_no_numbers(site: Site) -> None:
    class Shown(NoMetrics):
        is_there = True

        def clear(self) -> None:
            self.is_there = False

    told = Shown()
    environment = site.environment(a_runner(), told)
    assert len(list(site.folder.glob("*.json"))) == 1
    environment.discard()
    await environment.close()
    assert [one for one in site.folder.iterdir() if one.suffix in (".db", ".json")] == []
    assert not told.is_there


async def test_what_is_kept_of_a_fleet_that_left_nothing_goes_with_the_next_start(site: Site) -> None:
    """Its runner was taken out while no manager ran, and it had no machine; or it never was more than a mistake."""
    await site.of_a_dead_manager(a_runner("idle"), machines=0)
    await site.of_a_dead_manager(a_runner("busy"))
    there = site.environment(a_runner("there"))
    site.scaling.fleets = [(a_runner("there"), there)]
    with capture_logs() as said:
        await site.left.report()
    assert [line["runner"] for line in said] == ["busy"]
    assert sorted(file.name.partition("-")[0] for file in site.folder.glob("*.json")) == ["busy", "there"]
    await there.close()


async def test_what_is_kept_stays_while_the_state_cannot_be_read(site: Site) -> None:
    await site.of_a_dead_manager(a_runner())
    (file,) = site.folder.glob("*.db")
    file.write_bytes(b"no database" * 1000)
    await site.left.report()
    assert len(list(site.folder.glob("*.json"))) == 1


async def test_what_was_told_to_a_plugin_that_was_changed_goes_with_its_last_machine(site: Site) -> None:
    await site.of_a_dead_manager(a_runner())
    kept: list[set[str]] = []
    for machines in (2, 0):
        environment = site.environment(a_runner(plugin="other", plugin_config={}))
        await environment.close()
        (file,) = site.folder.glob("*.json")
        kept.append(set(msgspec.json.decode(file.read_bytes())["groups"]))
        if machines:
            (left,) = await site.left.find()
            state = StateFile(left.file)
            await state.write(Changes(instances=dict.fromkeys(left.machines)))
            state.close()
    assert kept == [{"cloud", "other"}, {"other"}]


async def test_other_settings_of_a_plugin_that_has_machines_are_told_of_once(site: Site) -> None:
    made = await site.of_a_dead_manager(a_runner())
    said = []
    for place in ("eu-1", "us-1", "us-1"):
        with capture_logs() as lines:
            environment = site.environment(a_runner(plugin_config={"anything": place}))
        said.append([line["machines"] for line in lines if line["log_level"] == "warning"])
        assert place not in str(lines)
        await environment.close()
    assert said == [[], [[f"cloud/{one}" for one in made]], []]


async def test_without_any_machines_the_command_says_what_to_do(site: Site) -> None:
    with pytest.raises(ManagerError, match="set a plugin in"):
        await site.sweep()


def test_which_groups_are_left() -> None:
    stored = Stored(
        instances=(
            StoredInstance(id="a", group="kept"),
            StoredInstance(id="b", group="gone", owner="s/own"),
            StoredInstance(id="c", group="gone", owner="s/another"),
        ),
        requests=(
            PendingRequest(number=1, group="asked", count=1, asked_at=0.0, phase=Phase.SENT),
            PendingRequest(number=2, group="never sent", count=1, asked_at=0.0),
        ),
    )
    assert unattended_groups(stored, {"kept"}, "own") == {"gone": ("b",), "asked": ()}
    assert unattended_groups(stored, {"kept", "gone", "asked"}, "own") == {}
