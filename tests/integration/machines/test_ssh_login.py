"""SSH login to machines: keys, passwords, host keys, and the error messages of failed logins."""

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

MakeEnvironment = Callable[..., MachinesEnvironment]
PLACE = a_place()


async def login_error(environment: MachinesEnvironment) -> str:
    with pytest.raises(EnvironmentTemporaryError) as caught:
        await environment.acquire(PLACE)
    return str(caught.value)


async def test_login_as_an_unprivileged_user_with_a_password(lab: Machines, environment: MakeEnvironment) -> None:
    machine = lab.machines[0]
    subject = environment(machine, user=USER, password=PASSWORD, identity_file="")
    assert await subject.acquire(PLACE) == machine.name
    work = (await subject.prepare(PLACE, machine.name)).work_dir
    assert work == "/home/ci/.remuda/builds/abcdefghi/1/group/project"
    assert (machine.root / work.lstrip("/")).stat().st_uid == 2000
    async with await subject.connect(machine.name) as client:
        assert (await client.describe()).uid == 2000


async def test_host_keys_must_be_in_known_hosts(lab: Machines, environment: MakeEnvironment, tmp_path: Path) -> None:
    first, second, _ = lab.machines
    known_hosts = str(lab.known_hosts(first))
    assert await environment(first, host_key="", known_hosts_file=known_hosts).acquire(PLACE) == first.name
    message = await login_error(environment(second, host_key="", known_hosts_file=known_hosts))
    assert f"the host key of root@{second.address}:22 is not in {known_hosts}" in message
    assert f"ssh-keyscan -p 22 {second.address}" in message
    message = await login_error(environment(second, host_key="", known_hosts_file=str(tmp_path / "none")))
    assert f"is not in {tmp_path}/none" in message


async def test_a_wrong_host_key_is_refused(lab: Machines, environment: MakeEnvironment) -> None:
    first, second, _ = lab.machines
    message = await login_error(environment(first, host_key=second.host_key))
    assert f"root@{first.address}:22 has another host key than its host_key says" in message


async def test_host_key_checking_can_be_disabled(lab: Machines) -> None:
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
    ("address", "message"),
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
async def test_error_messages_of_failed_logins(
    lab: Machines, environment: MakeEnvironment, address: dict[str, str], message: str
) -> None:
    assert message in await login_error(environment(lab.machines[0], **address))


async def test_a_machine_without_python_is_refused_with_the_fix(lab: Machines, environment: MakeEnvironment) -> None:
    machine = lab.machines[0]
    machine.hide_python()
    assert "no Python 3.11 or newer): install Python there, or give a frozen agent" in await login_error(
        environment(machine)
    )
