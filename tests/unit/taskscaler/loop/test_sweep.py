"""Sweeping several groups at once, and groups that no runner manages any more."""

import asyncio
from pathlib import Path

import pytest

from remuda.fleeting import InProcess, TemporaryError
from remuda.lib.clock import VirtualClock, settle
from remuda.taskscaler.loop.sweep import ASK_SECONDS, AbandonedGroup, SweepResult, sweep, sweep_abandoned
from remuda.testing.scalers import OWNER, Cloud, CloudGroup, Stable

OLD = "s_test/old-name"


async def plugins_of(stable: Stable) -> dict[str, InProcess]:
    plugins = {name: InProcess(CloudGroup(cloud)) for name, cloud in stable.clouds.items()}
    for plugin in plugins.values():
        await plugin.init({}, stable.setup.groups[0].settings)
    for cloud in stable.clouds.values():
        cloud.on_delete = lambda _: None  # nobody has jobs here
    return plugins


async def run_sweep(
    stable: Stable, plugins: dict[str, InProcess], not_begun: dict[str, str] | None = None
) -> SweepResult:
    options = {"folder": stable.folder, "clock": stable.clock, "remove": True, "not_begun": not_begun}
    work = sweep(stable.setup, plugins, lambda: {OWNER}, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(work, name="sweep")
    await settle(100)
    while not task.done():
        await stable.clock.advance(5.0)
        await asyncio.sleep(0.001)  # a file is read in a thread
        await settle(50)
    return await task


async def test_a_group_that_hangs_does_not_delay_others(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "hung", "good")
    orphan = stable.clouds["good"].make(1, OLD)
    stable.clouds["good"].machines[orphan[0]].created_at -= 3600.0
    stable.clouds["hung"].hung.add("recover")
    began = stable.clock.now()
    result = await run_sweep(stable, await plugins_of(stable))
    assert list(result.removed) == orphan
    assert "group hung: Recover of group hung was not answered" in result.errors[0]
    assert stable.clock.now() - began < 2 * ASK_SECONDS


async def test_a_runner_that_comes_back_while_groups_are_asked_keeps_its_machines(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    (machine,) = stable.cloud.make(1, OLD)
    stable.cloud.machines[machine].created_at -= 3600.0

    def configured() -> set[str]:
        return {OWNER, OLD} if "update" in stable.cloud.calls else {OWNER}

    plugins = await plugins_of(stable)
    result = await sweep(stable.setup, plugins, configured, folder=tmp_path, clock=stable.clock, remove=True)
    assert (result.found, list(stable.cloud.list_instances())) == ((), [machine])


async def test_a_plugin_that_has_not_started_is_not_asked(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "slow")
    result = await run_sweep(stable, await plugins_of(stable), not_begun={"slow": "its plugin is starting, 12 s"})
    assert result == SweepResult(errors=("group slow: its plugin is starting, 12 s",))
    assert stable.clouds["slow"].calls == ["init"]


async def test_machines_that_cannot_be_removed_are_still_reported(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    (orphan,) = stable.cloud.make(1, OLD)
    stable.cloud.machines[orphan].created_at -= 3600.0
    stable.cloud.broken["decrease"] = TemporaryError("no quota for calls")
    result = await run_sweep(stable, await plugins_of(stable))
    assert [machine.instance for machine in result.found] == [orphan]
    assert (result.removed, result.errors) == ((), ("group : no quota for calls",))


async def run_abandoned_sweep(
    cloud: Cloud, abandoned: AbandonedGroup, *, taken: tuple[str, ...] = ()
) -> tuple[SweepResult, frozenset[str] | None]:
    plugin = InProcess(CloudGroup(cloud))
    work = sweep_abandoned(abandoned, plugin, taken=lambda: taken, clock=cloud.clock, remove=True)
    task = asyncio.create_task(work, name="sweep")
    await settle(100)
    while not task.done():
        await cloud.clock.advance(1.0)
        await settle(50)
    return await task


async def test_machines_of_a_runner_that_is_gone_are_found_by_tag_and_by_state() -> None:
    cloud = Cloud(VirtualClock())
    recorded = cloud.make(2, OLD)
    unseen = cloud.make(1, OLD)  # requested when the manager was killed
    untagged = cloud.make(1)
    others = [*cloud.make(1, "s_test/new-name"), *cloud.make(1, "s_other/1"), *cloud.make(1)]
    abandoned = AbandonedGroup(
        fleet="old-name", owner=OLD, group="", instances=(*recorded, *untagged, others[0], "i-gone")
    )
    result, remaining = await run_abandoned_sweep(cloud, abandoned)
    assert sorted(result.removed) == sorted([*recorded, *unseen, *untagged])
    assert {machine.why for machine in result.found} == {
        "no configured runner manages it any more; it was created for old-name"
    }
    assert remaining == frozenset()
    assert cloud.list_instances().keys() == set(others)
    assert cloud.calls[-1] == "shutdown"


async def test_machines_that_another_runner_has_taken_over_stay() -> None:
    """If a plugin cannot tag, the next runner of the same group uses the machines."""
    cloud = Cloud(VirtualClock())
    both = cloud.make(2)
    abandoned = AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=tuple(both))
    result, remaining = await run_abandoned_sweep(cloud, abandoned, taken=(both[0],))
    assert (result.removed, remaining) == ((both[1],), frozenset())
    assert cloud.list_instances().keys() == {both[0]}


async def test_machines_with_a_slow_deletion_are_not_forgotten() -> None:
    cloud = Cloud(VirtualClock())
    cloud.delete_seconds = 3600.0
    slow, unseen = cloud.make(2, OLD)
    result, remaining = await run_abandoned_sweep(
        cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=(slow,))
    )
    assert (result.removed, remaining) == ((slow, unseen), frozenset({slow, unseen}))


async def test_a_plugin_that_cannot_be_started_is_reported() -> None:
    cloud = Cloud(VirtualClock())
    cloud.broken["init"] = TemporaryError("no such region")
    result, remaining = await run_abandoned_sweep(
        cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="aws", instances=("i-1",))
    )
    assert (result.errors, remaining) == (("group aws: no such region",), None)


async def test_an_error_while_closing_the_plugin_does_not_fail_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(VirtualClock())
    (machine,) = cloud.make(1, OLD)

    async def close(_: InProcess) -> None:
        raise OSError("its socket is gone")

    monkeypatch.setattr(InProcess, "close", close, raising=False)
    result, remaining = await run_abandoned_sweep(
        cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=(machine,))
    )
    assert (result.removed, remaining) == ((machine,), frozenset())
