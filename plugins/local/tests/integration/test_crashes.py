"""Kills the plugin at different lines: machines survive, the next process finds them, and no incomplete one is left."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.machines.local_groups import LocalGroups, run_on_machine

from remuda.fleeting import InstanceState, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.testing.plugin_groups import a_killed_plugin, remove_all, start_machines, wait_for_states
from remuda_plugin_local.store import Store

pytestmark = pytest.mark.long

RUNNING = InstanceState.RUNNING


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 8, 12, 16, 20, 25, 35, 45])
async def test_killed_while_machines_are_made(local_groups: LocalGroups, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_local", count)
    group = await local_groups.group("hosted", plugin=program, max_size=3)
    armed.touch()
    try:
        assert await group.increase(3) == 3
    except TemporaryError:
        assert died.exists()
    await wait_for_states(group, lambda _: died.exists())
    names = await wait_for_states(group, lambda states: set(states.values()) <= {RUNNING})
    for name in names:
        assert await run_on_machine(group, name, "hostname") == name
    assert await group.increase(3) == 3 - len(names)
    await wait_for_states(group, lambda states: [*states.values()] == [RUNNING] * 3)
    await remove_all(group)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 9, 14, 20])
async def test_killed_during_machine_removal(local_groups: LocalGroups, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_local", count)
    group = await local_groups.group("hosted", plugin=program)
    first, second, third = await start_machines(group, 3)
    armed.touch()
    try:
        assert await group.decrease([first, second]) == [first, second]
    except TemporaryError:
        assert died.exists()
    await wait_for_states(group, lambda _: died.exists())
    # The caller got no answer, so it asks again.
    await wait_for_states(group, lambda _: True)
    assert await group.decrease([first, second]) == [first, second]
    await wait_for_states(group, lambda states: states == {third: RUNNING})
    assert await run_on_machine(group, third, "hostname") == third


async def test_machines_continue_without_the_plugin(local_groups: LocalGroups) -> None:
    group = await local_groups.group("hosted")
    assert isinstance(group, HostedGroup)
    names = await start_machines(group, 2)
    for name in names:
        await run_on_machine(group, name, "nohup sleep 1000 >/dev/null 2>&1 & touch /root/mine")
    assert group.pid is not None
    os.kill(group.pid, signal.SIGKILL)
    await wait_for_states(group, lambda states: states == dict.fromkeys(names, RUNNING) and group.starts == 2)
    await group.shutdown()
    await group.close()
    another = await local_groups.group("hosted")
    assert await another.update() == dict.fromkeys(names, RUNNING)
    for name in names:
        await another.heartbeat(name)
        assert await run_on_machine(another, name, "ls /root; pgrep -c sleep") == "mine\n1"


async def test_a_machine_that_died_with_the_plugin_is_cleared(local_groups: LocalGroups) -> None:
    group = await local_groups.group("hosted")
    machine, other = await start_machines(group, 2)
    await group.close()
    process = Store(local_groups.folder).process(machine)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    another = await local_groups.group("hosted")
    await wait_for_states(another, lambda states: states == {other: RUNNING})


async def test_a_broken_file_affects_only_its_machine(local_groups: LocalGroups) -> None:
    group = await local_groups.group()
    [machine] = await start_machines(group, 1)
    broken_folder = Store(local_groups.folder).place("broken")
    broken_folder.mkdir()
    (broken_folder / "machine.json").write_bytes(b"\0\0\0")
    (broken_folder / "lock").touch()
    await wait_for_states(group, lambda states: states == {machine: RUNNING})


async def test_two_groups_do_not_disturb_each_other(local_groups: LocalGroups, tmp_path: Path) -> None:
    async with LocalGroups(tmp_path) as other_groups:
        group, other = await local_groups.group("hosted"), await other_groups.group("hosted")
        [machine, _], [other_machine, _] = await asyncio.gather(start_machines(group, 2), start_machines(other, 2))
        assert set(await group.update()).isdisjoint(await other.update())
        for group_of_machine, name in ((group, machine), (other, other_machine)):
            assert await run_on_machine(group_of_machine, name, "hostname") == name
        await remove_all(other)
        assert set((await group.update()).values()) == {RUNNING}
        assert await run_on_machine(group, machine, "hostname") == machine
