"""Calls of the group, in the tests' process and as the program that managers start, with a fake docker-machine."""

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.docker_machine_groups import KEY, PROGRAM, DockerMachineGroups

from remuda.fleeting import Connector, InstanceState, PermanentError, Settings, TemporaryError, UnhealthyError
from remuda.fleeting.conformance import Outcome, Trial, try_out
from remuda.testing.plugin_groups import OWNER, start_machines, wait_for_states

both = pytest.mark.parametrize("kind", ["in process", "hosted"])
CREATING, RUNNING, DELETING, DELETED = (
    InstanceState.CREATING,
    InstanceState.RUNNING,
    InstanceState.DELETING,
    InstanceState.DELETED,
)


@both
async def test_init_returns_id_size_and_capabilities(docker_groups: DockerMachineGroups, kind: str) -> None:
    group = await docker_groups.group(kind, max_size=7, name="small")
    assert group.info is not None
    assert (group.info.id, group.info.max_size, group.info.version) == ("docker-machine/small", 7, "0.1.0")
    assert group.info.capabilities == {"heartbeat", "remuda.stats", "remuda.recover"}
    assert (await group.stats()).quota == 7
    assert await group.update() == {}


@both
async def test_machines_are_created_and_removed(docker_groups: DockerMachineGroups, kind: str) -> None:
    group = await docker_groups.group(
        kind,
        machine_name="ci-%s",
        machine_options=["engine-label=a b", "--plain"],
        machine_options_with_name=["tags=Name,%s"],
    )
    docker_groups.write_control_file("hold")
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) == {CREATING}
    docker_groups.remove_control_file("hold")
    machine, other = await wait_for_states(group, lambda states: [*states.values()] == [RUNNING, RUNNING])
    assert machine.startswith("remuda-ci-")
    assert (
        f"create --driver stand-in --engine-label=a b --plain --tags=Name,{machine} {machine}" in docker_groups.calls()
    )
    assert await group.decrease([machine, "nobody"]) == [machine, "nobody"]
    await wait_for_states(group, lambda states: states == {other: RUNNING})
    assert docker_groups.machines() == docker_groups.records() == [other]
    with pytest.raises(PermanentError, match=f"there is no machine {machine}"):
        await group.connect_info(machine)
    assert await group.decrease([other]) == [other]
    await wait_for_states(group, lambda states: not states)
    assert docker_groups.machines() == docker_groups.records() == []
    assert docker_groups.calls("rm")[-1] == f"rm -y {other}"
    await group.shutdown()


async def test_certificates_are_made_once_and_first(docker_groups: DockerMachineGroups) -> None:
    groups = await asyncio.gather(*(docker_groups.group(name=name) for name in ("a", "b", "c")))
    assert len(docker_groups.calls("create --driver none")) == 1
    assert docker_groups.calls()[0].startswith("create --driver none --url tcp://127.0.0.1:2376 remuda-certificates-")
    await asyncio.gather(*(group.increase(1) for group in groups))
    for group in groups:
        assert len(await wait_for_states(group, lambda states: [*states.values()] == [RUNNING])) == 1


async def test_a_program_that_fails_is_an_error_with_its_cause(docker_groups: DockerMachineGroups) -> None:
    docker_groups.write_control_file("refuse-create", "no space left on device")
    with pytest.raises(PermanentError, match="cannot make its certificates: exit code 3: no space left on device"):
        await docker_groups.group()


@both
async def test_connect_info_is_read_from_docker_machines_files(docker_groups: DockerMachineGroups, kind: str) -> None:
    group = await docker_groups.group(kind, machine_options=["stand-in-address=10.9.8.7", "stand-in-port=2022"])
    [machine] = await start_machines(group, 1)
    info = await group.connect_info(machine)
    assert (info.address(), info.address(use_external=True)) == ("10.9.8.7", "10.9.8.7")
    assert (info.connector.port, info.connector.username, info.connector.key) == (2022, "docker-user", KEY.encode())
    assert (info.connector.os, info.connector.protocol) == ("linux", "ssh")


async def test_an_address_that_is_not_stored_is_asked_for_once(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group(machine_options=["stand-in-address="])
    [machine] = await start_machines(group, 1)
    with pytest.raises(TemporaryError, match=f"{machine} has no address yet"):
        await group.connect_info(machine)
    docker_groups.write_control_file("ip", "10.1.1.1\n")
    for _ in range(2):
        assert (await group.connect_info(machine)).address() == "10.1.1.1"
    assert len(docker_groups.calls("ip")) == 2


async def test_static_credentials_of_the_operator_are_used(docker_groups: DockerMachineGroups) -> None:
    connector = Connector(use_static_credentials=True, username="ci", key=b"own", keepalive_seconds=7)
    group = await docker_groups.group(settings=Settings(connector=connector))
    [machine] = await start_machines(group, 1)
    login = (await group.connect_info(machine)).connector
    assert (login.username, login.key, login.keepalive_seconds) == ("ci", b"own", 7)


async def test_a_driver_without_keys_needs_a_key_of_the_operator(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group()
    [machine] = await start_machines(group, 1)
    (docker_groups.store / "machines" / machine / "id_rsa").unlink()
    with pytest.raises(PermanentError, match="set username and key_path in connector_config"):
        await group.connect_info(machine)


async def test_a_machine_without_reply_is_unhealthy(docker_groups: DockerMachineGroups, server: asyncio.Server) -> None:
    port = server.sockets[0].getsockname()[1]
    group = await docker_groups.group(machine_options=[f"stand-in-port={port}"])
    [machine] = await start_machines(group, 1)
    await group.heartbeat(machine)
    assert docker_groups.calls("ls") == []
    server.close()
    with pytest.raises(
        UnhealthyError, match=f"{machine} does not answer at 127.0.0.1; docker-machine says of it: Stopped"
    ):
        await group.heartbeat(machine)
    with pytest.raises(UnhealthyError, match="there is no machine nobody"):
        await group.heartbeat("nobody")


@both
async def test_max_size_is_never_exceeded(docker_groups: DockerMachineGroups, kind: str) -> None:
    group = await docker_groups.group(kind, max_size=3)
    counts = await asyncio.gather(*(group.increase(2) for _ in range(3)))
    assert sum(counts) == 3
    assert len(await group.update()) == 3


async def test_create_at_once_is_never_exceeded(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group(create_at_once=1)
    docker_groups.write_control_file("hold")
    assert await group.increase(3) == 3
    while len(docker_groups.machines()) < 1:  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.02)
    assert len(docker_groups.calls("create --driver stand-in")) == 1
    docker_groups.remove_control_file("hold")
    await wait_for_states(group, lambda states: [*states.values()] == [RUNNING] * 3)


@both
async def test_recover_returns_owners(docker_groups: DockerMachineGroups, kind: str) -> None:
    began = time.time()
    group = await docker_groups.group(kind)
    mine = await start_machines(group, 1)
    theirs = await docker_groups.group(kind, settings=Settings(owner="another/1"))
    assert await theirs.update() == {}
    assert await theirs.increase(1) == 1
    tags = {tag.instance: tag for tag in await group.recover()}
    assert tags[mine[0]].owner == OWNER
    assert sorted(tag.owner for tag in tags.values()) == ["another/1", OWNER]
    assert all(began - 1 <= (tag.created_at or 0) <= time.time() + 1 for tag in tags.values())
    assert list(await group.update()) == mine


async def test_machines_that_the_plugin_did_not_make_are_not_touched(docker_groups: DockerMachineGroups) -> None:
    group = await docker_groups.group()
    (docker_groups.store / "machines" / "mine").mkdir(parents=True)
    assert await group.update() == {}
    assert await group.recover() == []
    assert await group.decrease(["mine"]) == ["mine"]
    await group.shutdown()
    assert docker_groups.machines() == ["mine"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"machine_driver": ""}, "machine_driver is missing"),
        ({"machine_name": "fixed"}, "has no %s in it"),
        ({"machine_name": "a_%s"}, "names of hosts are needed"),
        ({"machine_name": "x" * 60 + "%s"}, "63 letters, digits, dots and dashes at most"),
        ({"machine_opt": []}, "did you mean machine_options"),
        ({"program": "no-such-program"}, "there is no no-such-program: install docker-machine"),
        ({"storage_path": "here"}, "an absolute path"),
        ({"storage_path": "/proc/nowhere"}, "storage_path = '/proc/nowhere' cannot be used"),
    ],
)
async def test_error_messages_for_wrong_settings(
    docker_groups: DockerMachineGroups, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(PermanentError, match=message):
        await docker_groups.group(**config)


async def test_it_passes_the_conformance_suite(docker_groups: DockerMachineGroups, server: asyncio.Server) -> None:
    config = docker_groups.config(machine_options=[f"stand-in-port={server.sockets[0].getsockname()[1]}"])
    results = [result async for result in try_out(Trial(program=str(PROGRAM), config=config, end_seconds=30.0))]
    assert results
    assert [result for result in results if result.outcome is Outcome.FAILED] == []
    assert docker_groups.machines() == docker_groups.records() == []


def test_the_program_prints_its_schema(tmp_path: Path) -> None:
    output = subprocess.run([str(PROGRAM), "schema"], capture_output=True, text=True, check=True).stdout
    assert "machine_options_with_name" in json.loads(output)["$defs"]["Config"]["properties"]
