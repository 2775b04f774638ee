"""Machines of runners that are no longer configured: reported at the start, listed, and removed with their state."""

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
    settings = {"plugin": "cloud", "plugin_config": {"anything": "eu-1"}, "connector_config": login} | autoscaler
    return RunnerConfig(
        name=name,
        url="http://cell.invalid",
        executor="instance",
        autoscaler=AutoscalerConfig(**settings),  # type: ignore[arg-type]
    )


class Site:
    """A manager's folder, cloud and environments, without a manager process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.cloud = Cloud(self.clock, boot_seconds=1e9, delete_seconds=5.0)
        self.created_plugins: list[str] = []
        self.scaling = Scaling(lambda name, work: asyncio.create_task(work(), name=name))  # type: ignore[arg-type]
        self.environments = Environments(
            lambda runner, _: self.environment(runner), identity, EnvironmentContext(folder=folder)
        )
        self.orphaned = OrphanedMachines(
            folder,
            scaling=self.scaling,
            plugins=self.plugin,
            block=self.environments.block,
            clock=self.clock,
        )

    def plugin(self, plugin: str) -> InstanceGroup:
        self.created_plugins.append(plugin)
        return InProcess(CloudGroup(self.cloud))

    def environment(self, runner: RunnerConfig, metrics: ScalerMetrics | None = None) -> AutoscaledEnvironment:
        return AutoscaledEnvironment(
            runner,
            folder=self.folder,
            system_id=SYSTEM,
            clock=self.clock,
            plugins=self.plugin,
            counts=lambda _: metrics or NoMetrics(),
        )

    async def create_orphans(self, runner: RunnerConfig, *, machines: int = 2) -> list[str]:
        """Create a state file and machines like those of a manager process that was killed."""
        environment = self.environment(runner)
        ids = self.cloud.make(machines, environment.setup.owner)
        file = StateFile(state_path(self.folder, environment.setup.name))
        group = environment.setup.groups[0].name
        owner = environment.setup.owner
        await file.write(
            Changes(
                instances={
                    f"{group}/{instance}": StoredInstance(id=instance, group=group, owner=owner) for instance in ids
                }
            )
        )
        file.close()
        self.created_plugins.clear()
        return ids

    async def sweep(self, *, remove: bool = False, runner: str = "") -> SweepReport:
        command = Command(command="sweep", runner=runner, remove=remove)
        work = scale_commands(self.scaling, self.orphaned)["sweep"](command)
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


async def test_machines_of_a_removed_runner_are_reported_at_the_start(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    with capture_logs() as events:
        await site.orphaned.report()
    (event,) = events
    assert event["log_level"] == "warning"
    assert event["machines"] == [f"cloud/{instance}" for instance in ids]
    assert (event["runner"], event["file"].startswith(str(site.folder))) == ("builder", True)
    assert "remuda scale sweep --remove" in event["what_to_do"]


async def test_a_sweep_lists_machines_and_removes_them_with_remove(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    listing = await site.sweep()
    assert [orphan.instance for orphan in listing.orphans] == ids
    assert not any(orphan.is_removed for orphan in listing.orphans)
    assert (len(site.cloud.list_instances()), site.created_plugins) == (2, ["cloud"])
    report = await site.sweep(remove=True)
    assert all(orphan.is_removed for orphan in report.orphans)
    assert (report.problems, report.remarks) == ((), ())
    assert site.cloud.list_instances() == {}
    assert list(site.folder.iterdir()) == []
    assert await site.orphaned.find() == []
    with capture_logs() as events:
        await site.orphaned.report()
    assert events == []


async def test_host_keys_are_deleted_with_their_machines(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    files = [host_key_path(site.folder, name) for name in (f"cloud/{ids[0]}", "cloud/another")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text("a key")
    await site.sweep()
    assert [file.exists() for file in files] == [True, True]
    await site.sweep(remove=True)
    assert [file.exists() for file in files] == [False, True]


async def test_stored_plugin_settings_are_private_and_complete(site: Site, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a key")
    login = ConnectorConfig(username="ci", key_path=str(tmp_path / "key"))
    await site.create_orphans(a_runner(connector_config=login))
    (tmp_path / "key").unlink()
    (file,) = site.folder.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    (fleet,) = await site.orphaned.find()
    settings = fleet.record.groups["cloud"]
    assert (settings.plugin, settings.config, settings.login) == ("cloud", {"anything": "eu-1"}, login)
    assert "a key" not in file.read_text()
    assert len((await site.sweep()).orphans) == 2  # without the key, too


async def test_vanished_machines_are_named_and_removed_from_the_state(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    site.cloud.machines.clear()
    report = await site.sweep()
    assert report.orphans == ()
    assert [f"cloud/{instance} is gone" in text for instance, text in zip(ids, report.remarks, strict=True)] == [
        True,
        True,
    ]
    assert len(await site.orphaned.find()) == 1
    await site.sweep(remove=True)
    assert await site.orphaned.find() == []


async def test_a_sweep_can_be_repeated_after_an_error_of_the_provider(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    site.cloud.broken["update"] = TemporaryError("come back later")
    report = await site.sweep(remove=True)
    assert report.problems[0].endswith("group cloud: come back later")
    site.cloud.broken.clear()
    assert [orphan.instance for orphan in (await site.sweep(remove=True)).orphans] == ids


async def test_machines_without_stored_settings_are_reported_with_advice(site: Site) -> None:
    """Earlier versions did not store plugin settings."""
    await site.create_orphans(a_runner())
    for file in site.folder.glob("*.json"):
        file.unlink()
    report = await site.sweep(remove=True)
    assert "put the runner's section back" in report.problems[0]
    assert report.problems[0].count("builder-") == 1
    assert len(site.cloud.list_instances()) == 2
    with capture_logs() as events:
        await site.orphaned.report()
    assert "put the runner's section back" in events[0]["what_to_do"]


async def test_a_runner_cannot_come_back_while_its_machines_are_removed(site: Site) -> None:
    await site.create_orphans(a_runner())
    site.cloud.delete_seconds = 20.0
    sweeping = asyncio.create_task(site.sweep(remove=True), name="sweep")
    while "decrease" not in site.cloud.calls:  # noqa: ASYNC110 - by virtual time
        await asyncio.sleep(0.001)
    with pytest.raises(ClosingError):
        site.environments.of(a_runner())
    await sweeping
    environment = site.environments.of(a_runner())
    await environment.close()


async def test_machines_of_a_configured_runner_are_not_orphaned(site: Site) -> None:
    await site.create_orphans(a_runner())
    environment = site.environment(a_runner())
    site.scaling.fleets = [(a_runner(), environment)]
    assert await site.orphaned.find() == []
    await environment.close()


async def test_machines_of_a_replaced_plugin_are_orphaned(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    environment = site.environment(a_runner(plugin="other", plugin_config={}))
    site.scaling.fleets = [(a_runner(), environment)]
    (fleet,) = await site.orphaned.find()
    assert fleet.groups == {"cloud": tuple(ids)}
    await site.orphaned.sweep(fleet, remove=False)
    work = asyncio.create_task(site.orphaned.sweep(fleet, remove=True), name="sweep")
    while not work.done():
        await site.clock.advance(0.5)
        await asyncio.sleep(0.001)
    result, _ = await work
    assert list(result.removed) == ids
    assert await site.orphaned.find() == []
    assert state_path(site.folder, environment.setup.name).exists()
    await environment.close()


async def test_late_machines_of_a_replaced_plugin_are_found(site: Site) -> None:
    runner = a_runner()
    await site.create_orphans(runner, machines=1)
    site.cloud.machines.clear()
    (fleet,) = await site.orphaned.find()
    state = StateFile(fleet.file)
    request = PendingRequest(number=7, group="cloud", count=1, asked_at=0.0, phase=Phase.SENDING)
    await state.write(Changes(instances=dict.fromkeys(fleet.machines), requests={7: request}))
    state.close()
    environment = site.environment(a_runner(plugin="other", plugin_config={}))
    site.scaling.follow([environment])
    while environment.status().plan is None:
        await site.clock.advance(0.5)
        await settle(50)
    site.scaling.follow([])
    await environment.close()
    site.scaling.fleets = [(runner, environment)]
    (fleet,) = await site.orphaned.find()
    assert fleet.groups == {"cloud": ()}
    late = site.cloud.make(1, environment.setup.owner)
    result, _ = await site.orphaned.sweep(fleet, remove=False)
    assert [orphan.instance for orphan in result.found] == late


async def test_machines_that_another_runner_uses_are_not_removed(site: Site) -> None:
    """If a plugin cannot tag machines, a renamed runner continues to use the machines that it had."""
    ids = await site.create_orphans(a_runner("old"))
    for machine in site.cloud.machines.values():
        machine.owner = ""
    environment = site.environment(a_runner("new"))
    site.scaling.follow([environment])
    while len(environment.status().instances) < 2:
        await site.clock.advance(0.5)
        await settle(50)
    site.scaling.fleets = [(a_runner("new"), environment)]
    report = await site.sweep(remove=True, runner="old")
    assert report.orphans == ()
    assert site.cloud.list_instances().keys() == set(ids)
    site.scaling.follow([])
    await environment.close()


async def test_nothing_is_removed_before_a_runner_with_the_same_plugin_has_listed_its_machines(site: Site) -> None:
    """If a plugin cannot tag machines, that runner may already have started a job on one of them."""
    ids = await site.create_orphans(a_runner("old"))
    for machine in site.cloud.machines.values():
        machine.owner = ""
    environment = site.environment(a_runner("new"))
    site.scaling.fleets = [(a_runner("new"), environment)]
    report = await site.sweep(remove=True, runner="old")
    assert "new has the same plugin and has not listed its machines yet" in report.problems[0]
    assert site.cloud.list_instances().keys() == set(ids)
    assert len((await site.sweep(runner="old")).orphans) == 2
    await environment.close()


async def test_the_state_stays_while_a_machine_cannot_be_removed(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    (late,) = site.cloud.make(1, f"{SYSTEM}/{(await site.orphaned.find())[0].name}")
    site.cloud.machines.pop(ids[0])
    site.cloud.machines.pop(ids[1])
    site.cloud.delete_seconds = 3600.0
    report = await site.sweep(remove=True)
    assert [orphan.instance for orphan in report.orphans] == [late]
    assert len(list(site.folder.glob("*.json"))) == 1


async def test_a_fleet_that_is_closed_leaves_no_files_and_metrics(site: Site) -> None:
    class Metrics(NoMetrics):
        is_there = True

        def clear(self) -> None:
            self.is_there = False

    metrics = Metrics()
    environment = site.environment(a_runner(), metrics)
    assert len(list(site.folder.glob("*.json"))) == 1
    environment.discard()
    await environment.close()
    assert [file for file in site.folder.iterdir() if file.suffix in (".db", ".json")] == []
    assert not metrics.is_there


async def test_settings_of_a_fleet_without_machines_are_deleted_at_the_next_start(site: Site) -> None:
    """For example, a runner without machines was removed from the configuration while no manager ran."""
    await site.create_orphans(a_runner("idle"), machines=0)
    await site.create_orphans(a_runner("busy"))
    environment = site.environment(a_runner("there"))
    site.scaling.fleets = [(a_runner("there"), environment)]
    with capture_logs() as events:
        await site.orphaned.report()
    assert [event["runner"] for event in events] == ["busy"]
    assert sorted(file.name.partition("-")[0] for file in site.folder.glob("*.json")) == ["busy", "there"]
    await environment.close()


async def test_settings_stay_while_the_state_cannot_be_read(site: Site) -> None:
    await site.create_orphans(a_runner())
    (file,) = site.folder.glob("*.db")
    file.write_bytes(b"no database" * 1000)
    await site.orphaned.report()
    assert len(list(site.folder.glob("*.json"))) == 1


async def test_settings_of_a_replaced_plugin_are_deleted_with_its_last_machine(site: Site) -> None:
    await site.create_orphans(a_runner())
    stored_groups: list[set[str]] = []
    for machines in (2, 0):
        environment = site.environment(a_runner(plugin="other", plugin_config={}))
        await environment.close()
        (file,) = site.folder.glob("*.json")
        stored_groups.append(set(msgspec.json.decode(file.read_bytes())["groups"]))
        if machines:
            (fleet,) = await site.orphaned.find()
            state = StateFile(fleet.file)
            await state.write(Changes(instances=dict.fromkeys(fleet.machines)))
            state.close()
    assert stored_groups == [{"cloud", "other"}, {"other"}]


async def test_changed_settings_of_a_plugin_with_machines_are_logged_once(site: Site) -> None:
    ids = await site.create_orphans(a_runner())
    warnings = []
    for region in ("eu-1", "us-1", "us-1"):
        with capture_logs() as events:
            environment = site.environment(a_runner(plugin_config={"anything": region}))
        warnings.append([event["machines"] for event in events if event["log_level"] == "warning"])
        assert region not in str(events)
        await environment.close()
    assert warnings == [[], [[f"cloud/{instance}" for instance in ids]], []]


async def test_a_sweep_without_autoscaled_runners_is_an_error(site: Site) -> None:
    with pytest.raises(ManagerError, match="set a plugin in"):
        await site.sweep()


def test_unattended_groups() -> None:
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
