"""Calls of the group, in the process of the tests and as the program that managers start, with real machines."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.local_groups import PROGRAM, LocalGroups, run_on_machine

from remuda.fleeting import Connector, InstanceState, PermanentError, Settings, TemporaryError, UnhealthyError
from remuda.testing.plugin_groups import OWNER, start_machines, wait_for_states
from remuda_plugin_local.addresses import routes
from remuda_plugin_local.keys import new_key
from remuda_plugin_local.store import Store

both = pytest.mark.parametrize("kind", ["in process", "hosted"])
CREATING, RUNNING, DELETED = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETED


@both
async def test_init_returns_id_size_and_capabilities(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind, max_size=7)
    assert group.info is not None
    assert (group.info.id, group.info.max_size, group.info.version) == (f"local/{local_groups.name}", 7, "0.1.0")
    assert group.info.capabilities == {"heartbeat", "remuda.stats", "remuda.recover"}
    assert (await group.stats()).quota == 7
    assert await group.update() == {}


@both
async def test_machines_are_created_and_removed(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind)
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) <= {CREATING, RUNNING}
    machine, other = await wait_for_states(group, lambda states: [*states.values()] == [RUNNING, RUNNING])
    for name in (machine, other):
        await group.heartbeat(name)
        assert (
            await run_on_machine(group, name, "hostname; touch /root/mine /usr/mine; cat /proc/1/comm")
            == f"{name}\nsshd"
        )
    assert not Path("/usr/mine").exists()
    assert await group.decrease([machine]) == [machine]
    await wait_for_states(group, lambda states: [*states] == [other])
    assert await run_on_machine(group, other, "ls /root") == "mine"
    assert await group.decrease([machine, other]) == [machine, other]
    await wait_for_states(group, lambda states: not states)
    with pytest.raises(PermanentError, match=f"there is no machine {machine}"):
        await group.connect_info(machine)
    await group.shutdown()


@both
async def test_max_size_is_never_exceeded(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind, max_size=3)
    counts = await asyncio.gather(*(group.increase(2) for _ in range(3)))
    assert sum(counts) == 3
    assert await group.increase(1) == 0
    assert len(await group.update()) == 3


@both
async def test_a_machine_that_is_killed_is_deleted(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind)
    machine, other = await start_machines(group, 2)
    process = Store(local_groups.folder).process(machine)
    assert process is not None
    await asyncio.to_thread(_wait_for_end, process.pid, by=signal.SIGKILL)
    with pytest.raises(UnhealthyError, match=f"{machine} has ended"):
        await group.heartbeat(machine)
    assert await group.update() == {machine: DELETED, other: RUNNING}
    await wait_for_states(group, lambda states: states == {other: RUNNING})
    with pytest.raises(UnhealthyError, match="there is no machine nobody"):
        await group.heartbeat("nobody")


@both
async def test_a_machine_that_powers_off_is_deleted(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind)
    [machine] = await start_machines(group, 1)
    await run_on_machine(group, machine, "kill 1", check=False)
    await wait_for_states(group, lambda states: states == {machine: DELETED})
    await wait_for_states(group, lambda states: not states)


async def test_a_machine_that_cannot_be_reached_is_unhealthy(local_groups: LocalGroups) -> None:
    group = await local_groups.group()
    [machine] = await start_machines(group, 1)
    address = (await group.connect_info(machine)).address()
    link = f"rl-{machine.rpartition('-')[2]}"
    await asyncio.to_thread(subprocess.run, ["ip", "link", "set", link, "down"], check=True)
    with pytest.raises(UnhealthyError, match=f"does not answer at {address}"):
        await group.heartbeat(machine)


@both
async def test_recover_returns_owners(local_groups: LocalGroups, kind: str) -> None:
    began = time.time()
    group = await local_groups.group(kind)
    mine = await start_machines(group, 1)
    theirs = await local_groups.group(kind, settings=Settings(owner="another/1"))
    assert await theirs.increase(1) == 1
    tags = {tag.instance: tag for tag in await group.recover()}
    assert tags[mine[0]].owner == OWNER
    assert sorted(tag.owner for tag in tags.values()) == ["another/1", OWNER]
    assert all(began - 1 <= (tag.created_at or 0) <= time.time() + 1 for tag in tags.values())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_sise": 1}, "there is no setting max_sise; did you mean max_size"),
        ({"kind": "docker"}, "kind"),
        ({"network": "10.250.0.1"}, "room for no machine"),
        ({"network": "10.250.0.1/16"}, "has host bits set"),
        ({"root": "/nowhere"}, "a folder is needed"),
        ({"folder": "here"}, "an absolute path"),
        ({"memory": "much"}, "memory"),
        ({"lease_seconds": 5}, "at least 180"),
        ({"kind": "qemu"}, "needs qemu.disk"),
        ({"kind": "qemu", "qemu": {"disk": "/nowhere.img"}}, "the file cannot be read"),
        ({"kind": "qemu", "qemu": {"disc": "/nowhere.img"}}, "disc"),
    ],
)
async def test_error_messages_for_wrong_settings(
    local_groups: LocalGroups, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(PermanentError, match=message):
        await local_groups.group(**config)


async def test_a_network_in_use_is_refused(local_groups: LocalGroups) -> None:
    used = [route["dst"] for route in routes() if "/" in route["dst"] and not route["dev"].startswith("rl-")]
    if not used:
        pytest.skip("this machine has no route to anywhere")
    with pytest.raises(PermanentError, match="is in use: this host has a route to"):
        await local_groups.group(network=used[0])


def test_only_root_can_have_namespaces() -> None:
    line = "import os; from remuda_plugin_local.config import *; os.seteuid(65534); check(Config())"
    process = subprocess.run([sys.executable, "-c", line], check=False, capture_output=True, text=True)
    assert 'kind = "namespace" needs root, and this is user 65534: run the runner manager as root' in process.stderr


async def test_passwords_are_refused(local_groups: LocalGroups) -> None:
    connector = Connector(use_static_credentials=True, username="ci", password="secret")
    with pytest.raises(PermanentError, match="use_static_credentials needs a key"):
        await local_groups.group(settings=Settings(connector=connector))


async def test_the_operators_key_and_user(local_groups: LocalGroups) -> None:
    key = new_key()
    connector = Connector(use_static_credentials=True, username="ci", key=key, keepalive_seconds=7, timeout_seconds=9)
    group = await local_groups.group(settings=Settings(connector=connector))
    [machine] = await start_machines(group, 1)
    info = await group.connect_info(machine)
    assert (info.connector.key, info.connector.username, info.connector.os) == (key, "ci", "linux")
    assert (info.connector.keepalive_seconds, info.connector.timeout_seconds) == (7, 9)
    assert await run_on_machine(group, machine, "id -un; pwd; touch mine && ls") == "ci\n/home/ci\nmine"


async def test_limits_apply_and_can_be_divided(local_groups: LocalGroups) -> None:
    group = await local_groups.group(memory="64m", cpus=0.5)
    [machine] = await start_machines(group, 1)
    limits = await run_on_machine(
        group, machine, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    )
    assert limits.split() == [str(64 << 20), "50000"]
    job = "/sys/fs/cgroup/memory/job"
    line = f"mkdir {job} && echo $$ >{job}/cgroup.procs && grep memory: /proc/$$/cgroup"
    assert (await run_on_machine(group, machine, line)).endswith(":/job")
    use_200_mib = """/usr/bin/python3 -c "b'x' * (200 << 20)"; echo $?"""
    assert await run_on_machine(group, machine, use_200_mib, check=False) != "0"


async def test_no_process_is_in_the_top_group_of_version_2(local_groups: LocalGroups) -> None:
    """A process in the top group would prevent limits for its subgroups, which users and container engines make."""
    if "cgroup2" not in Path("/proc/mounts").read_text():
        pytest.skip("this host has no control groups of version 2")
    group = await local_groups.group(lease_seconds=180)
    [machine] = await start_machines(group, 1)
    top = "$(sed -n 's/^[^ ]* \\([^ ]*\\) cgroup2 .*/\\1/p' /proc/mounts)"
    output = await run_on_machine(
        group, machine, f"cat {top}/cgroup.procs; echo; grep ^0: /proc/self/cgroup; mkdir {top}/job"
    )
    assert output.split() == ["0::/machine"]


async def test_a_configured_root_is_not_written_to(local_groups: LocalGroups, small_root: Path) -> None:
    group = await local_groups.group(root=str(small_root), start="echo begun >/root/started")
    [machine] = await start_machines(group, 1)
    assert await run_on_machine(group, machine, "cat /root/started; ls /; touch /root/mine") != ""
    assert await run_on_machine(group, machine, "cat /root/started") == "begun"
    assert "work" not in (await run_on_machine(group, machine, "ls /")).split()
    assert sorted(path.name for path in (small_root / "root").iterdir()) == []


async def test_log_has_reason_of_a_failed_start(local_groups: LocalGroups, caplog: pytest.LogCaptureFixture) -> None:
    group = await local_groups.group(start="echo the disk is broken >&2; exit 3")
    assert await group.increase(1) == 1
    await wait_for_states(group, lambda states: DELETED in states.values())
    await wait_for_states(group, lambda states: not states)
    assert "ended before a login was possible; removing it. Its last output: the disk is broken" in caplog.text


async def test_a_machine_does_not_see_files_of_the_group(local_groups: LocalGroups) -> None:
    group = await local_groups.group()
    [machine] = await start_machines(group, 1)
    assert await run_on_machine(group, machine, f"cat {local_groups.folder}/key", check=False) == ""
    assert await run_on_machine(group, machine, "ls -A /root /home /tmp | grep -v :", check=False) == ""
    assert await run_on_machine(group, machine, "ls /dev/vda /dev/sda /dev/mem 2>/dev/null", check=False) == ""


async def test_the_host_is_reachable_and_name_lookups_fail_at_once(local_groups: LocalGroups) -> None:
    group = await local_groups.group()
    [machine] = await start_machines(group, 1)
    accepted = asyncio.Event()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        accepted.set()

    server = await asyncio.start_server(accept, "10.250.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (
            await run_on_machine(group, machine, f"bash -c 'exec 3<>/dev/tcp/10.250.0.1/{port}' && echo reached")
            == "reached"
        )
        await accepted.wait()
    assert await run_on_machine(group, machine, "getent hosts nobody.example; echo $?") == "2"


@both
async def test_machines_are_removed_while_they_are_made(local_groups: LocalGroups, kind: str) -> None:
    group = await local_groups.group(kind)
    assert await group.increase(5) == 5
    names = list(await group.update())
    assert await group.decrease(names) == names
    await wait_for_states(group, lambda states: not states)


@pytest.mark.long
async def test_a_machine_ends_when_its_lease_ends(local_groups: LocalGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda_plugin_local.group.check", lambda _: None)
    group = await local_groups.group(lease_seconds=1)
    [machine] = await start_machines(group, 1)
    folder = Store(local_groups.folder).place(machine)
    process = Store(local_groups.folder).process(machine)
    assert process is not None
    await asyncio.to_thread(_wait_for_end, process.pid)
    assert "nobody has asked for this machine for more than 1 s" in (folder / "log").read_text()
    await wait_for_states(group, lambda states: states == {machine: DELETED})


def _wait_for_end(pid: int, *, by: signal.Signals | None = None) -> None:
    process = os.pidfd_open(pid)
    try:
        if by is not None:
            signal.pidfd_send_signal(process, by)
        assert select.select([process], [], [], 60)[0], "the process did not end"
    finally:
        os.close(process)


async def test_connect_info_without_an_address_is_a_temporary_error(local_groups: LocalGroups) -> None:
    group = await local_groups.group()
    store = Store(local_groups.folder)
    [draft] = store.add(1, group=local_groups.name, owner="", now=time.time(), max_size=1)
    with pytest.raises(TemporaryError, match="has no address yet"):
        await group.connect_info(draft.machine.id)
    os.close(draft.lock)


def test_the_program_prints_its_version() -> None:
    output = subprocess.run([str(PROGRAM), "version"], capture_output=True, text=True, check=True).stdout
    assert "Name: fleeting-plugin-local\nVersion: 0.1.0\n" in output
