"""SSH login to machines of a plugin: addresses, ready command, retries, passwords, host keys and session limits."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import msgspec
import pytest
from tests.support.machines.machines import PASSWORD, USER, Machine, Machines

from remuda.fleeting import ConnectInfo, Connector, PermanentError, TemporaryError
from remuda.lib.clock import SystemClock, VirtualClock
from remuda.manager.config.autoscaler import AutoscalerConfig
from remuda.manager.config.fleet_setup import fleet_setup
from remuda.manager.config.values import RemudaConfig, RunnerConfig
from remuda.manager.environments.instances import DENIED_SECONDS, Instances, host_and_port
from remuda.taskscaler.fleet.setup import Machines as MachinesPort

NAME = "lab/m1"
MakeInstances = Callable[..., Instances]


@pytest.fixture
async def instances(tmp_path: Path) -> AsyncIterator[MakeInstances]:
    """A function that makes Instances with further keys of the configuration; all of them share one folder."""
    async with AsyncExitStack() as stack:

        def make(
            *, clock: SystemClock | VirtualClock | None = None, remuda_keys: object = None, **keys: object
        ) -> Instances:
            runner = RunnerConfig(
                executor="instance",
                autoscaler=msgspec.structs.replace(AutoscalerConfig(plugin="lab"), **keys),
                remuda=remuda_keys if isinstance(remuda_keys, RemudaConfig) else RemudaConfig(),
            )

            async def ask(instance: str) -> ConnectInfo:
                raise AssertionError(instance)

            setup = fleet_setup(runner, system_id="s_1")
            instances = Instances(runner, setup, tmp_path / "kept", clock=clock or SystemClock(), ask=ask)
            _: MachinesPort = instances
            stack.push_async_callback(instances.close)
            return instances

        yield make


def info(lab: Machines, machine: Machine, **login: object) -> ConnectInfo:
    connector = Connector(username="root", key=lab.key.read_bytes())
    return ConnectInfo(connector=replace(connector, **login), internal_addr=machine.address)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["", ":22", "[]:22", "10.0.0.1:ssh", "10.0.0.1:65536"])
async def test_an_address_without_host_or_with_a_bad_port_is_refused(instances: MakeInstances, address: str) -> None:
    """An empty host would be the manager's own machine."""
    with pytest.raises(PermanentError, match="address"):
        await instances().prepare(NAME, ConnectInfo(connector=Connector(), internal_addr=address))


def test_addresses_may_have_a_port() -> None:
    assert host_and_port("10.0.0.1") == ("10.0.0.1", 0)
    assert host_and_port("box.example:2222") == ("box.example", 2222)
    assert host_and_port("fd00::1") == ("fd00::1", 0)
    assert host_and_port("[fd00::1]:2222") == ("fd00::1", 2222)


async def test_the_ready_command_may_write_to_stderr_but_must_succeed(lab: Machines, instances: MakeInstances) -> None:
    await instances(instance_ready_command="echo careful >&2; touch /root/ready").prepare(
        NAME, info(lab, lab.machines[0])
    )
    assert (lab.machines[0].root / "root/ready").exists()
    with pytest.raises(PermanentError, match=r"'echo no >&2; exit 3' ended with 3 there: no"):
        await instances(instance_ready_command="echo no >&2; exit 3").prepare(NAME, info(lab, lab.machines[0]))


async def test_refused_port_is_final(lab: Machines, instances: MakeInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """One `prepare` makes one connection; the scaler decides when to try again."""
    subject, tries = instances(), 0
    connect = asyncssh.connect

    async def count_connections(*arguments: Any, **options: Any) -> asyncssh.SSHClientConnection:
        nonlocal tries
        tries += 1
        return await connect(*arguments, **options)

    monkeypatch.setattr("remuda.manager.environments.ssh.asyncssh.connect", count_connections)
    for number in range(1, 4):
        with pytest.raises(TemporaryError, match="cannot be reached"):
            await subject.prepare(NAME, info(lab, lab.machines[0], port=23))
        assert tries == number


async def test_zero_keepalive_means_the_default(lab: Machines, instances: MakeInstances) -> None:
    """0 means the default, not an interval or timeout of zero seconds."""
    subject = instances()
    await subject.prepare(NAME, info(lab, lab.machines[0], keepalive_seconds=0.0, timeout_seconds=0.0))
    assert (await subject.connect(NAME)).address.keep_alive_seconds == 10.0


async def test_a_wrong_password_fails_fast(lab: Machines, instances: MakeInstances) -> None:
    """A machine that refuses the login is given up after seconds, not after the connector's timeout of ten minutes."""
    clock = VirtualClock()
    subject = instances(clock=clock)
    denied = info(lab, lab.machines[0], username=USER, key=b"", password="wrong")
    with pytest.raises(TemporaryError, match="does not accept the password"):
        await subject.prepare(NAME, denied)
    await clock.advance(DENIED_SECONDS)
    with pytest.raises(PermanentError, match="does not accept the password"):
        await subject.prepare(NAME, denied)
    await subject.prepare(NAME, info(lab, lab.machines[0], username=USER, key=b"", password=PASSWORD))


async def test_a_machine_that_never_answers_fails_at_connector_timeout(instances: MakeInstances, lab: Machines) -> None:
    clock = VirtualClock()
    subject = instances(clock=clock)
    booting = info(lab, lab.machines[0], port=23, timeout_seconds=60.0)
    with pytest.raises(TemporaryError):
        await subject.prepare(NAME, booting)
    await clock.advance(60.0)
    with pytest.raises(PermanentError, match="no login within 60 s"):
        await subject.prepare(NAME, booting)


async def test_the_plugins_key_is_used_without_a_file(lab: Machines, instances: MakeInstances) -> None:
    subject = instances()
    await subject.prepare(NAME, info(lab, lab.machines[0]))
    machine = await subject.connect(NAME)
    assert machine.is_up
    assert await subject.connect(NAME) is machine


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe\x00"], ids=["empty", "garbage"])
async def test_damaged_host_keys_fail(lab: Machines, instances: MakeInstances, tmp_path: Path, damaged: bytes) -> None:
    first, second, _ = lab.machines
    await instances().prepare(NAME, info(lab, first))
    [pinned] = [path for path in tmp_path.rglob("host-keys/*") if path.is_file()]
    pinned.write_bytes(damaged)
    later = instances()
    with pytest.raises(PermanentError, match=f"cannot be read from {pinned}"):
        await later.prepare(NAME, replace(info(lab, first), internal_addr=second.address))
    await later.forget(NAME)
    await later.prepare(NAME, info(lab, first))


async def test_the_host_key_is_pinned(lab: Machines, instances: MakeInstances, tmp_path: Path) -> None:
    first, second, _ = lab.machines
    await instances().prepare(NAME, info(lab, first))
    later = instances()
    await later.prepare(NAME, info(lab, first))
    impostor = replace(info(lab, first), internal_addr=second.address)
    with pytest.raises(TemporaryError, match="has another host key"):
        await later.prepare(NAME, impostor)
    await later.forget(NAME)
    await later.prepare(NAME, impostor)
    known_hosts = RemudaConfig(known_hosts_file=str(lab.known_hosts(first)))
    await instances(remuda_keys=known_hosts).prepare("lab/given", info(lab, first))
    with pytest.raises(TemporaryError, match="is not in"):
        await instances(remuda_keys=known_hosts).prepare("lab/given", info(lab, second))


async def test_capacity_above_max_sessions_is_refused(lab: Machines, instances: MakeInstances) -> None:
    """A capacity above the MaxSessions of sshd is refused with that reason before any job runs there."""
    machine = lab.machines[0]
    with (lab.folder / "sshd_config").open("a") as config:  # the machine copies it at its start
        config.write("MaxSessions 2\n")
    machine.kill()
    machine.start()
    machine.wait()
    with pytest.raises(PermanentError, match=r"allows 2 sessions .* 4 are needed .* raise MaxSessions"):
        await instances(capacity_per_instance=3).prepare(NAME, info(lab, machine))
    await instances(capacity_per_instance=1).prepare(NAME, info(lab, machine))


async def test_winrm_is_refused_with_an_explanation(instances: MakeInstances) -> None:
    with pytest.raises(PermanentError, match="reached by winrm"):
        await instances().prepare(NAME, ConnectInfo(connector=Connector(protocol="winrm"), internal_addr="10.0.0.1"))


async def test_slow_provider_does_not_fail_the_check(instances: MakeInstances, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer of the plugin to ConnectInfo does not count as a failed check of the machine."""

    async def ask(_instance: str) -> ConnectInfo:
        await asyncio.sleep(0.01)
        raise TemporaryError("too many requests")

    subject = instances()
    monkeypatch.setattr(subject, "_ask", ask)
    monkeypatch.setattr("remuda.manager.environments.instances.CHECK_SECONDS", 0.0)
    with pytest.raises(TemporaryError, match="too many requests"):
        await subject.check(NAME)
