"""Kills the plugin at different lines: the next process continues with every machine, and none is left in the store."""

from pathlib import Path

import pytest
from tests.support.machines.docker_machine_groups import DockerMachineGroups

from remuda.fleeting import InstanceState, TemporaryError
from remuda.testing.plugin_groups import a_killed_plugin, start_machines, wait_for_states

pytestmark = pytest.mark.long

RUNNING = InstanceState.RUNNING


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9, 12, 15, 18, 22, 30])
async def test_killed_while_machines_are_made(docker_groups: DockerMachineGroups, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_docker_machine", count)
    group = await docker_groups.group("hosted", plugin=program, max_size=3)
    armed.touch()
    try:
        assert await group.increase(3) == 3
    except TemporaryError:
        assert died.exists()
    await wait_for_states(group, lambda _: died.exists())
    names = await wait_for_states(group, lambda states: set(states.values()) <= {RUNNING})
    assert docker_groups.machines() == docker_groups.records() == sorted(names)
    assert await group.increase(3) == 3 - len(names)
    names = await wait_for_states(group, lambda states: [*states.values()] == [RUNNING] * 3)
    assert await group.decrease(names) == names
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.machines() == docker_groups.records() == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 10, 13])
async def test_killed_during_machine_removal(docker_groups: DockerMachineGroups, tmp_path: Path, count: int) -> None:
    program, armed, died = a_killed_plugin(tmp_path, "remuda_plugin_docker_machine", count)
    group = await docker_groups.group("hosted", plugin=program)
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
    assert docker_groups.machines() == docker_groups.records() == [third]
