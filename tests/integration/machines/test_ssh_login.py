"""Who is let in, which machines are believed, and what is said when it does not work."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.machines.machines import PASSWORD, USER, Machines
from tests.support.manager_values import a_place

from remuda.lib.clock import SystemClock
from remuda.manager.config.ssh import SshConfig
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.machines import MachinesEnvironment, ssh_environment
from remuda.manager.errors import EnvironmentTemporaryError

Make = Callable[..., MachinesEnvironment]
PLACE = a_place()


async def refusal(environment: MachinesEnvironment) -> str:
    with pytest.raises(EnvironmentTemporaryError) as caught:
        await environment.acquire(PLACE)
    return str(caught.value)


async def test_a_plain_user_with_a_password(lab: Machines, environment: Make) -> None:
    machine = lab.machines[0]
    subject = environment(machine, user=USER, password=PASSWORD, identity_file="")
    assert await subject.acquire(PLACE) == machine.name
    work = (await subject.prepare(PLACE, machine.name)).work_dir
    assert work == "/home/ci/.remuda/builds/abcdefghi/1/group/project"
    assert (machine.root / work.lstrip("/")).stat().st_uid == 2000
    async with await subject.connect(machine.name) as client:
        assert (await client.describe()).uid == 2000


async def test_a_known_hosts_file(lab: Machines, environment: Make, tmp_path: Path) -> None:
    first, second, _ = lab.machines
    known = str(lab.known_hosts(first))
    assert await environment(first, host_key="", known_hosts_file=known).acquire(PLACE) == first.name
    said = await refusal(environment(second, host_key="", known_hosts_file=known))
    assert f"the host key of root@{second.address}:22 is not in {known}" in said
    assert f"ssh-keyscan -p 22 {second.address}" in said
    said = await refusal(environment(second, host_key="", known_hosts_file=str(tmp_path / "none")))
    assert f"is not in {tmp_path}/none" in said


async def test_another_host_key_than_the_entry_says(lab: Machines, environment: Make) -> None:
    first, second, _ = lab.machines
    said = await refusal(environment(first, host_key=second.host_key))
    assert f"root@{first.address}:22 has another host key than its host_key says" in said


async def test_an_operator_may_believe_any_machine(lab: Machines) -> None:
    machine = lab.machines[0]
    ssh = SshConfig(
        host=machine.address, identity_file=str(lab.key), disable_strict_host_key_checking=True, known_hosts_file="/no"
    )
    subject = ssh_environment(RunnerConfig(executor="ssh", ssh=ssh), SystemClock())
    try:
        assert subject.fixed_machine == await subject.acquire(PLACE) == machine.address
        assert subject.capacity() is None
    finally:
        await subject.close()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"user": USER, "identity_file": "", "password": "wrong"}, "does not accept the password"),
        ({"user": "nobody"}, "the machine cannot be examined (exit code 1): Could not chdir to home directory"),
        ({"identity_file": "/no/such/key"}, "/no/such/key cannot be read: No such file"),
        ({"identity_file": "/etc/hostname"}, "the key /etc/hostname cannot be used"),
        ({"port": 23}, "root@10.250.0.11:23 cannot be reached"),
        ({"host": "10.250.0.99"}, "root@10.250.0.99:22 cannot be reached"),
        ({"host_key": "nonsense"}, "host_key cannot be read"),
    ],
)
async def test_what_is_wrong_is_said(lab: Machines, environment: Make, more: dict[str, str], text: str) -> None:
    assert text in await refusal(environment(lab.machines[0], **more))


async def test_a_machine_without_python_says_what_is_needed(lab: Machines, environment: Make) -> None:
    machine = lab.machines[0]
    machine.hide_python()
    assert "no Python 3.11 or newer): install Python there, or give a frozen agent" in await refusal(
        environment(machine)
    )
