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
from tests.support.machines.local_yard import PROGRAM, Yard, on

from remuda.fleeting import Connector, InstanceState, PermanentError, Settings, TemporaryError, UnhealthyError
from remuda.testing.plugin_groups import OWNER, start_machines, wait_for_states
from remuda_plugin_local.addresses import routes
from remuda_plugin_local.keys import new_key
from remuda_plugin_local.store import Store

both = pytest.mark.parametrize("kind", ["in process", "hosted"])
CREATING, RUNNING, DELETED = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETED


@both
async def test_init_returns_id_size_and_capabilities(yard: Yard, kind: str) -> None:
    group = await yard.group(kind, max_size=7)
    assert group.info is not None
    assert (group.info.id, group.info.max_size, group.info.version) == (f"local/{yard.name}", 7, "0.1.0")
    assert group.info.capabilities == {"heartbeat", "remuda.stats", "remuda.recover"}
    assert (await group.stats()).quota == 7
    assert await group.update() == {}


@both
async def test_machines_come_and_go(yard: Yard, kind: str) -> None:
    group = await yard.group(kind)
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) <= {CREATING, RUNNING}
    one, other = await wait_for_states(group, lambda states: [*states.values()] == [RUNNING, RUNNING])
    for name in (one, other):
        await group.heartbeat(name)
        assert await on(group, name, "hostname; touch /root/mine /usr/mine; cat /proc/1/comm") == f"{name}\nsshd"
    assert not Path("/usr/mine").exists()
    assert await group.decrease([one]) == [one]
    await wait_for_states(group, lambda states: [*states] == [other])
    assert await on(group, other, "ls /root") == "mine"
    assert await group.decrease([one, other]) == [one, other]
    await wait_for_states(group, lambda states: not states)
    with pytest.raises(PermanentError, match=f"there is no machine {one}"):
        await group.connect_info(one)
    await group.shutdown()


@both
async def test_max_size_is_never_exceeded(yard: Yard, kind: str) -> None:
    group = await yard.group(kind, max_size=3)
    counts = await asyncio.gather(*(group.increase(2) for _ in range(3)))
    assert sum(counts) == 3
    assert await group.increase(1) == 0
    assert len(await group.update()) == 3


@both
async def test_a_machine_that_is_killed_is_deleted(yard: Yard, kind: str) -> None:
    group = await yard.group(kind)
    one, other = await start_machines(group, 2)
    process = Store(yard.folder).process(one)
    assert process is not None
    await asyncio.to_thread(_wait_for_end, process.pid, by=signal.SIGKILL)
    with pytest.raises(UnhealthyError, match=f"{one} has ended"):
        await group.heartbeat(one)
    assert await group.update() == {one: DELETED, other: RUNNING}
    await wait_for_states(group, lambda states: states == {other: RUNNING})
    with pytest.raises(UnhealthyError, match="there is no machine nobody"):
        await group.heartbeat("nobody")


@both
async def test_a_machine_that_powers_off_is_deleted(yard: Yard, kind: str) -> None:
    group = await yard.group(kind)
    [one] = await start_machines(group, 1)
    await on(group, one, "kill 1", check=False)
    await wait_for_states(group, lambda states: states == {one: DELETED})
    await wait_for_states(group, lambda states: not states)


async def test_a_machine_that_cannot_be_reached_is_unhealthy(yard: Yard) -> None:
    group = await yard.group()
    [one] = await start_machines(group, 1)
    address = (await group.connect_info(one)).address()
    link = f"rl-{one.rpartition('-')[2]}"
    await asyncio.to_thread(subprocess.run, ["ip", "link", "set", link, "down"], check=True)
    with pytest.raises(UnhealthyError, match=f"does not answer at {address}"):
        await group.heartbeat(one)


@both
async def test_recover_returns_owners(yard: Yard, kind: str) -> None:
    began = time.time()
    group = await yard.group(kind)
    mine = await start_machines(group, 1)
    theirs = await yard.group(kind, settings=Settings(owner="another/1"))
    assert await theirs.increase(1) == 1
    tags = {tag.instance: tag for tag in await group.recover()}
    assert tags[mine[0]].owner == OWNER
    assert sorted(tag.owner for tag in tags.values()) == ["another/1", OWNER]
    assert all(began - 1 <= (tag.created_at or 0) <= time.time() + 1 for tag in tags.values())


@pytest.mark.parametrize(
    ("config", "text"),
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
        ({"kind": "qemu", "qemu": {"disk": "/nowhere.img"}}, "no such file can be read"),
        ({"kind": "qemu", "qemu": {"disc": "/nowhere.img"}}, "disc"),
    ],
)
async def test_a_wrong_setting_is_named(yard: Yard, config: dict[str, Any], text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        await yard.group(**config)


async def test_a_network_in_use_is_named(yard: Yard) -> None:
    used = [route["dst"] for route in routes() if "/" in route["dst"] and not route["dev"].startswith("rl-")]
    if not used:
        pytest.skip("this machine has no route to anywhere")
    with pytest.raises(PermanentError, match="is in use: this host has a route to"):
        await yard.group(network=used[0])


def test_only_root_can_have_namespaces() -> None:
    line = "import os; from remuda_plugin_local.config import *; os.seteuid(65534); check(Config())"
    process = subprocess.run([sys.executable, "-c", line], check=False, capture_output=True, text=True)
    assert 'kind = "namespace" needs root, and this is user 65534: run the runner manager as root' in process.stderr


async def test_passwords_are_refused(yard: Yard) -> None:
    connector = Connector(use_static_credentials=True, username="ci", password="secret")
    with pytest.raises(PermanentError, match="use_static_credentials needs a key"):
        await yard.group(settings=Settings(connector=connector))


async def test_the_operators_key_and_user(yard: Yard) -> None:
    key = new_key()
    connector = Connector(use_static_credentials=True, username="ci", key=key, keepalive_seconds=7, timeout_seconds=9)
    group = await yard.group(settings=Settings(connector=connector))
    [one] = await start_machines(group, 1)
    info = await group.connect_info(one)
    assert (info.connector.key, info.connector.username, info.connector.os) == (key, "ci", "linux")
    assert (info.connector.keepalive_seconds, info.connector.timeout_seconds) == (7, 9)
    assert await on(group, one, "id -un; pwd; touch mine && ls") == "ci\n/home/ci\nmine"


async def test_limits_hold_and_can_be_divided(yard: Yard) -> None:
    group = await yard.group(memory="64m", cpus=0.5)
    [one] = await start_machines(group, 1)
    seen = await on(group, one, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    assert seen.split() == [str(64 << 20), "50000"]
    job = "/sys/fs/cgroup/memory/job"
    line = f"mkdir {job} && echo $$ >{job}/cgroup.procs && grep memory: /proc/$$/cgroup"
    assert (await on(group, one, line)).endswith(":/job")
    eats = """/usr/bin/python3 -c "b'x' * (200 << 20)"; echo $?"""
    assert await on(group, one, eats, check=False) != "0"


async def test_no_process_is_in_the_top_group_of_version_2(yard: Yard) -> None:
    """Otherwise its subgroups, which users and container engines make, could have no limits."""
    if "cgroup2" not in Path("/proc/mounts").read_text():
        pytest.skip("this host has no control groups of version 2")
    group = await yard.group(lease_seconds=180)
    [one] = await start_machines(group, 1)
    top = "$(sed -n 's/^[^ ]* \\([^ ]*\\) cgroup2 .*/\\1/p' /proc/mounts)"
    printed = await on(group, one, f"cat {top}/cgroup.procs; echo; grep ^0: /proc/self/cgroup; mkdir {top}/job")
    assert printed.split() == ["0::/machine"]


async def test_a_configured_root_is_not_written_to(yard: Yard, small_root: Path) -> None:
    group = await yard.group(root=str(small_root), start="echo begun >/root/started")
    [one] = await start_machines(group, 1)
    assert await on(group, one, "cat /root/started; ls /; touch /root/mine") != ""
    assert await on(group, one, "cat /root/started") == "begun"
    assert "work" not in (await on(group, one, "ls /")).split()
    assert sorted(path.name for path in (small_root / "root").iterdir()) == []


async def test_the_log_says_why_a_machine_did_not_start(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    group = await yard.group(start="echo the disk is of cheese >&2; exit 3")
    assert await group.increase(1) == 1
    await wait_for_states(group, lambda states: DELETED in states.values())
    await wait_for_states(group, lambda states: not states)
    assert "ended before a login was possible; removing it. Its last output: the disk is of cheese" in caplog.text


async def test_a_machine_does_not_see_files_of_the_group(yard: Yard) -> None:
    group = await yard.group()
    [one] = await start_machines(group, 1)
    assert await on(group, one, f"cat {yard.folder}/key", check=False) == ""
    assert await on(group, one, "ls -A /root /home /tmp | grep -v :", check=False) == ""
    assert await on(group, one, "ls /dev/vda /dev/sda /dev/mem 2>/dev/null", check=False) == ""


async def test_the_host_is_reachable_and_name_lookups_fail_at_once(yard: Yard) -> None:
    group = await yard.group()
    [one] = await start_machines(group, 1)
    accepted = asyncio.Event()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        accepted.set()

    server = await asyncio.start_server(accept, "10.250.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await on(group, one, f"bash -c 'exec 3<>/dev/tcp/10.250.0.1/{port}' && echo reached") == "reached"
        await accepted.wait()
    assert await on(group, one, "getent hosts nobody.example; echo $?") == "2"


@both
async def test_machines_are_removed_while_they_are_made(yard: Yard, kind: str) -> None:
    group = await yard.group(kind)
    assert await group.increase(5) == 5
    names = list(await group.update())
    assert await group.decrease(names) == names
    await wait_for_states(group, lambda states: not states)


@pytest.mark.long
async def test_a_machine_ends_with_its_lease(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda_plugin_local.group.check", lambda _: None)
    group = await yard.group(lease_seconds=1)
    [one] = await start_machines(group, 1)
    folder = Store(yard.folder).place(one)
    process = Store(yard.folder).process(one)
    assert process is not None
    await asyncio.to_thread(_wait_for_end, process.pid)
    assert "nobody has asked for this machine for more than 1 s" in (folder / "log").read_text()
    await wait_for_states(group, lambda states: states == {one: DELETED})


def _wait_for_end(pid: int, *, by: signal.Signals | None = None) -> None:
    process = os.pidfd_open(pid)
    try:
        if by is not None:
            signal.pidfd_send_signal(process, by)
        assert select.select([process], [], [], 60)[0], "the process did not end"
    finally:
        os.close(process)


async def test_connect_info_without_an_address_is_a_temporary_error(yard: Yard) -> None:
    group = await yard.group()
    store = Store(yard.folder)
    [draft] = store.add(1, group=yard.name, owner="", now=time.time(), max_size=1)
    with pytest.raises(TemporaryError, match="has no address yet"):
        await group.connect_info(draft.machine.id)
    os.close(draft.lock)


def test_the_program_says_its_version() -> None:
    printed = subprocess.run([str(PROGRAM), "version"], capture_output=True, text=True, check=True).stdout
    assert "Name: fleeting-plugin-local\nVersion: 0.1.0\n" in printed
