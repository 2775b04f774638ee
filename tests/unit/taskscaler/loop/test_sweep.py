"""Sweeping several groups at the same time, and groups that nobody looks after any more."""

import asyncio
from pathlib import Path

import pytest

from remuda.fleeting import InProcess, TemporaryError
from remuda.lib.clock import VirtualClock, settle
from remuda.taskscaler.loop.sweep import ASK_SECONDS, AbandonedGroup, SweepResult, sweep, sweep_abandoned
from remuda.testing.scalers import OWNER, Cloud, CloudGroup, Stable

OLD = "s_test/old-name"


async def plugins_of(stable: Stable) -> dict[str, InProcess]:
    made = {name: InProcess(CloudGroup(cloud)) for name, cloud in stable.clouds.items()}
    for one in made.values():
        await one.init({}, stable.setup.groups[0].settings)
    for cloud in stable.clouds.values():
        cloud.on_delete = lambda _: None  # nobody has jobs here
    return made


async def swept_in_time(
    stable: Stable, plugins: dict[str, InProcess], not_begun: dict[str, str] | None = None
) -> SweepResult:
    how = {"folder": stable.folder, "clock": stable.clock, "remove": True, "not_begun": not_begun}
    work = sweep(stable.setup, plugins, lambda: {OWNER}, **how)  # type: ignore[arg-type]
    task = asyncio.create_task(work, name="sweep")
    await settle(100)
    while not task.done():
        await stable.clock.advance(5.0)
        await asyncio.sleep(0.001)  # a file is read in a thread
        await settle(50)
    return await task


async def test_a_group_that_hangs_keeps_no_other_from_it(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "hung", "good")
    orphan = stable.clouds["good"].make(1, OLD)
    stable.clouds["good"].machines[orphan[0]].created_at -= 3600.0
    stable.clouds["hung"].hung.add("recover")
    began = stable.clock.now()
    swept = await swept_in_time(stable, await plugins_of(stable))
    assert list(swept.removed) == orphan
    assert "group hung: Recover of group hung was not answered" in swept.errors[0]
    assert stable.clock.now() - began < 2 * ASK_SECONDS


async def test_a_runner_that_comes_back_while_groups_are_asked_keeps_its_machines(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    (machine,) = stable.cloud.make(1, OLD)
    stable.cloud.machines[machine].created_at -= 3600.0

    def configured() -> set[str]:
        return {OWNER, OLD} if "update" in stable.cloud.calls else {OWNER}

    plugins = await plugins_of(stable)
    swept = await sweep(stable.setup, plugins, configured, folder=tmp_path, clock=stable.clock, remove=True)
    assert (swept.found, list(stable.cloud.list_instances())) == ((), [machine])


async def test_a_plugin_that_has_not_begun_is_not_asked(tmp_path: Path) -> None:
    stable = Stable(tmp_path, "slow")
    swept = await swept_in_time(stable, await plugins_of(stable), not_begun={"slow": "its plugin is starting, 12 s"})
    assert swept == SweepResult(errors=("group slow: its plugin is starting, 12 s",))
    assert stable.clouds["slow"].calls == ["init"]


async def test_what_a_group_cannot_remove_is_still_found(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    (orphan,) = stable.cloud.make(1, OLD)
    stable.cloud.machines[orphan].created_at -= 3600.0
    stable.cloud.broken["decrease"] = TemporaryError("no quota for calls")
    swept = await swept_in_time(stable, await plugins_of(stable))
    assert [one.instance for one in swept.found] == [orphan]
    assert (swept.removed, swept.errors) == ((), ("group : no quota for calls",))


async def left_swept(
    cloud: Cloud, left: AbandonedGroup, *, taken: tuple[str, ...] = ()
) -> tuple[SweepResult, frozenset[str] | None]:
    plugin = InProcess(CloudGroup(cloud))
    work = sweep_abandoned(left, plugin, taken=lambda: taken, clock=cloud.clock, remove=True)
    task = asyncio.create_task(work, name="sweep")
    await settle(100)
    while not task.done():
        await cloud.clock.advance(1.0)
        await settle(50)
    return await task


async def test_machines_of_a_runner_that_is_gone_are_found_by_tag_and_by_state() -> None:
    cloud = Cloud(VirtualClock())
    known = cloud.make(2, OLD)
    unseen = cloud.make(1, OLD)  # asked for when the manager was killed
    untagged = cloud.make(1)
    others = [*cloud.make(1, "s_test/new-name"), *cloud.make(1, "s_other/1"), *cloud.make(1)]
    left = AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=(*known, *untagged, others[0], "i-gone"))
    swept, still = await left_swept(cloud, left)
    assert sorted(swept.removed) == sorted([*known, *unseen, *untagged])
    assert {one.why for one in swept.found} == {"no runner looks after it any more; it was made for old-name"}
    assert still == frozenset()
    assert cloud.list_instances().keys() == set(others)
    assert cloud.calls[-1] == "shutdown"


async def test_what_another_runner_has_taken_over_stays() -> None:
    """Where a plugin cannot tag, the next runner of the same group uses the machines."""
    cloud = Cloud(VirtualClock())
    both = cloud.make(2)
    left = AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=tuple(both))
    swept, still = await left_swept(cloud, left, taken=(both[0],))
    assert (swept.removed, still) == ((both[1],), frozenset())
    assert cloud.list_instances().keys() == {both[0]}


async def test_machines_that_take_their_time_to_go_are_not_forgotten() -> None:
    cloud = Cloud(VirtualClock())
    cloud.delete_seconds = 3600.0
    slow, unseen = cloud.make(2, OLD)
    swept, still = await left_swept(cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=(slow,)))
    assert (swept.removed, still) == ((slow, unseen), frozenset({slow, unseen}))


async def test_a_plugin_that_cannot_be_started_is_said() -> None:
    cloud = Cloud(VirtualClock())
    cloud.broken["init"] = TemporaryError("no such region")
    swept, still = await left_swept(cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="aws", instances=("i-1",)))
    assert (swept.errors, still) == (("group aws: no such region",), None)


async def test_a_plugin_that_does_not_end_in_order_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(VirtualClock())
    (machine,) = cloud.make(1, OLD)

    async def close(_: InProcess) -> None:
        raise OSError("its socket is gone")

    monkeypatch.setattr(InProcess, "close", close, raising=False)
    swept, still = await left_swept(cloud, AbandonedGroup(fleet="old-name", owner=OLD, group="", instances=(machine,)))
    assert (swept.removed, still) == ((machine,), frozenset())
