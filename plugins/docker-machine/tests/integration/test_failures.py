"""Creates and removals that fail or hang, and killed processes: no machine is left, no call is repeated endlessly."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.machines.docker_machine_groups import PROGRAM, DockerMachineGroups

from remuda.fleeting import InProcess, InstanceState, Settings, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff
from remuda.testing.plugin_groups import start_machines, wait_for_states
from remuda_plugin_docker_machine import group as group_module
from remuda_plugin_docker_machine.group import DockerMachineGroup

RUNNING, DELETING, DELETED = InstanceState.RUNNING, InstanceState.DELETING, InstanceState.DELETED


async def test_leaked_machines_are_gone(docker_groups: DockerMachineGroups, caplog: pytest.LogCaptureFixture) -> None:
    """Half-made machines are removed at once, those of former owners by `decrease`; a failure slows creation down."""
    group = await docker_groups.group()
    docker_groups.write_control_file("fail-create", "googleapi: Error 429: quota exceeded")
    assert await group.increase(1) == 1
    await wait_for_states(group, lambda states: DELETED in states.values())
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.machines() == docker_groups.records() == []
    assert "cannot create machine " in caplog.text
    # docker-machine is not called again at once, and the caller gets the cause.
    create_count = len(docker_groups.calls("create"))
    for _ in range(5):
        with pytest.raises(
            TemporaryError,
            match=r"1 times in a row \(exit code 1: .*quota exceeded\); the next attempt begins in \d+ s",
        ):
            await group.increase(3)
        await group.update()
    assert len(docker_groups.calls("create")) == create_count
    docker_groups.remove_control_file("fail-create")
    # A runner that is not configured any more has left a machine; a sweep finds it by its owner.
    former = await docker_groups.group(settings=Settings(owner="s_0123456789ab/former"))
    [orphan] = await start_machines(former, 1)
    assert orphan not in await group.update()
    assert [tag.owner for tag in await group.recover()] == ["s_0123456789ab/former"]
    assert await group.decrease([orphan]) == [orphan]
    await wait_for_states(former, lambda states: orphan not in states)
    assert docker_groups.machines() == docker_groups.records() == []


async def test_a_refused_create_leaves_nothing(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group()
    docker_groups.write_control_file("refuse-create", "ssh key missing")
    assert await group.increase(2) == 2
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.records() == []
    assert docker_groups.calls("rm -y") == []


async def test_a_create_has_a_deadline(docker_groups: DockerMachineGroups, caplog: pytest.LogCaptureFixture) -> None:
    group = await docker_groups.group(create_timeout=1)
    docker_groups.write_control_file("hold")
    assert await group.increase(1) == 1
    await wait_for_states(group, lambda states: not states)
    assert "it took too long: Creating machine..." in caplog.text
    assert docker_groups.machines() == []


async def test_a_new_plugin_continues_the_creates_of_a_killed_one(docker_groups: DockerMachineGroups) -> None:
    first = HostedGroup(str(PROGRAM))
    await first.init(docker_groups.config(), Settings(owner="me"))
    docker_groups.write_control_file("hold")
    assert await first.increase(2) == 2
    names = await wait_for_states(first, lambda states: len(docker_groups.machines()) == 2)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    await first.close()
    # docker-machine continues to make the machines, and the next plugin waits for it.
    second = await docker_groups.group("hosted", settings=Settings(owner="me"))
    assert set((await second.update()).values()) == {InstanceState.CREATING}
    docker_groups.remove_control_file("hold")
    assert sorted(await wait_for_states(second, lambda states: set(states.values()) == {RUNNING})) == sorted(names)
    assert len(docker_groups.calls("create --driver stand-in")) == 2


async def test_killed_create_has_no_leak(docker_groups: DockerMachineGroups, caplog: pytest.LogCaptureFixture) -> None:
    group = await docker_groups.group()
    docker_groups.write_control_file("hold")
    assert await group.increase(1) == 1
    [name] = await wait_for_states(group, lambda states: len(docker_groups.machines()) == 1)
    _kill_all(docker_groups.store / "remuda" / name / "lock")
    await wait_for_states(group, lambda states: not states)
    assert "is incomplete, because its creation was killed" in caplog.text
    assert docker_groups.machines() == docker_groups.records() == []


async def test_a_machine_under_creation_is_removed_afterwards(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group()
    docker_groups.write_control_file("hold")
    assert await group.increase(1) == 1
    [name] = await wait_for_states(group, lambda states: len(docker_groups.machines()) == 1)
    assert await group.decrease([name]) == [name]
    assert await group.update() == {name: DELETING}
    assert docker_groups.calls("rm -y") == []
    docker_groups.remove_control_file("hold")
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.calls("rm -y") == [f"rm -y {name}"]


async def test_a_removal_is_tried_again_and_then_forced(
    docker_groups: DockerMachineGroups, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_module, "AGAIN", Backoff(first_seconds=0.01, ceiling_seconds=0.01))
    group = await docker_groups.group(remove_attempts=2)
    [name] = await start_machines(group, 1)
    docker_groups.write_control_file("fail-rm", "the provider is busy")
    assert await group.decrease([name]) == [name]
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.calls("rm -")[-3:] == [f"rm -y {name}", f"rm -y {name}", f"rm -f {name}"]
    assert f"cannot remove machine {name}; next try in 0 s: exit code 1: the provider is busy" in caplog.text
    assert f"giving up on machine {name} after 2 attempts to remove it; check whether it still exists" in caplog.text


async def test_a_broken_machine_is_removed_by_force(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group()
    [name] = await start_machines(group, 1)
    (docker_groups.store / "machines" / name / "config.json").write_text("{")
    with pytest.raises(TemporaryError, match="cannot be read"):
        await group.connect_info(name)
    assert await group.decrease([name]) == [name]
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.calls("rm -")[-1] == f"rm -f {name}"


async def test_a_removal_continues_after_a_restart_of_the_plugin(docker_groups: DockerMachineGroups) -> None:
    first = InProcess(DockerMachineGroup())
    await first.init(docker_groups.config(), Settings(owner="me"))
    [name] = await start_machines(first, 1)
    docker_groups.write_control_file("fail-rm", "busy")
    assert await first.decrease([name]) == [name]
    await first.shutdown()
    docker_groups.remove_control_file("fail-rm")
    second = await docker_groups.group(settings=Settings(owner="another"))
    await wait_for_states(second, lambda states: docker_groups.records() == [])
    assert docker_groups.machines() == []


async def test_the_dummy_machine_of_a_killed_process_is_removed(docker_groups: DockerMachineGroups) -> None:
    (docker_groups.store / "machines" / "remuda-certificates-0123").mkdir(parents=True)
    await docker_groups.group()
    assert docker_groups.machines() == []


def _kill_all(lock: Path) -> None:
    """Kill the processes that have the lock file as stdin."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                has_lock = os.readlink(folder / "fd" / "0") == str(lock)
            except OSError:
                continue
            if has_lock:
                os.kill(int(folder.name), signal.SIGKILL)


async def test_shutdown_does_not_wait_for_machines(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group(create_at_once=1)
    docker_groups.write_control_file("hold")
    assert await group.increase(2) == 2
    async with asyncio.timeout(10):
        await group.shutdown()
