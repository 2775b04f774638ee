"""The plugin is killed at any line: its machines survive, the next process finds them, nothing stays half made."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.machines.local_yard import Yard, on

from remuda.fleeting import InstanceState, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.testing.plugin_groups import a_killed_plugin, remove_all, start_machines, wait_for_states
from remuda_plugin_local.store import Store

pytestmark = pytest.mark.long

RUNNING = InstanceState.RUNNING


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 8, 12, 16, 20, 25, 35, 45])
async def test_killed_while_machines_are_made(yard: Yard, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_local", count)
    group = await yard.group("hosted", plugin=program, max_size=3)
    armed.touch()
    try:
        assert await group.increase(3) == 3
    except TemporaryError:
        assert died.exists()
    await wait_for_states(group, lambda _: died.exists())
    names = await wait_for_states(group, lambda states: set(states.values()) <= {RUNNING})
    for name in names:
        assert await on(group, name, "hostname") == name
    assert await group.increase(3) == 3 - len(names)
    await wait_for_states(group, lambda states: [*states.values()] == [RUNNING] * 3)
    await remove_all(group)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 9, 14, 20])
async def test_killed_while_machines_are_removed(yard: Yard, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_local", count)
    group = await yard.group("hosted", plugin=program)
    one, two, three = await start_machines(group, 3)
    armed.touch()
    try:
        assert await group.decrease([one, two]) == [one, two]
    except TemporaryError:
        assert died.exists()
    await wait_for_states(group, lambda _: died.exists())
    # The caller got no answer, so it asks again.
    await wait_for_states(group, lambda _: True)
    assert await group.decrease([one, two]) == [one, two]
    await wait_for_states(group, lambda states: states == {three: RUNNING})
    assert await on(group, three, "hostname") == three


async def test_machines_outlive_the_plugin(yard: Yard) -> None:
    group = await yard.group("hosted")
    assert isinstance(group, HostedGroup)
    names = await start_machines(group, 2)
    for name in names:
        await on(group, name, "nohup sleep 1000 >/dev/null 2>&1 & touch /root/mine")
    assert group.pid is not None
    os.kill(group.pid, signal.SIGKILL)
    await wait_for_states(group, lambda states: states == dict.fromkeys(names, RUNNING) and group.starts == 2)
    await group.shutdown()
    await group.close()
    another = await yard.group("hosted")
    assert await another.update() == dict.fromkeys(names, RUNNING)
    for name in names:
        await another.heartbeat(name)
        assert await on(another, name, "ls /root; pgrep -c sleep") == "mine\n1"


async def test_a_machine_that_died_with_the_plugin_is_cleared(yard: Yard) -> None:
    group = await yard.group("hosted")
    one, other = await start_machines(group, 2)
    await group.close()
    process = Store(yard.folder).process(one)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    another = await yard.group("hosted")
    await wait_for_states(another, lambda states: states == {other: RUNNING})


async def test_a_broken_file_costs_one_machine(yard: Yard) -> None:
    group = await yard.group()
    [one] = await start_machines(group, 1)
    broken = Store(yard.folder).place("broken")
    broken.mkdir()
    (broken / "machine.json").write_bytes(b"\0\0\0")
    (broken / "lock").touch()
    await wait_for_states(group, lambda states: states == {one: RUNNING})


async def test_groups_side_by_side(yard: Yard, tmp_path: Path) -> None:
    async with Yard(tmp_path) as other_yard:
        group, other = await yard.group("hosted"), await other_yard.group("hosted")
        [one, _], [another, _] = await asyncio.gather(start_machines(group, 2), start_machines(other, 2))
        assert set(await group.update()).isdisjoint(await other.update())
        for there, name in ((group, one), (other, another)):
            assert await on(there, name, "hostname") == name
        await remove_all(other)
        assert set((await group.update()).values()) == {RUNNING}
        assert await on(group, one, "hostname") == one
