"""Calls of the group, in the tests' process and as the program that managers start, with a fake docker-machine."""

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.docker_machine_yard import KEY, PROGRAM, Yard

from remuda.fleeting import Connector, InstanceState, PermanentError, Settings, TemporaryError, UnhealthyError
from remuda.fleeting.conformance import Outcome, Trial, try_out
from remuda.testing.plugin_groups import OWNER, start_machines, wait_for_states

both = pytest.mark.parametrize("how", ["in process", "hosted"])
CREATING, RUNNING, DELETING, DELETED = (
    InstanceState.CREATING,
    InstanceState.RUNNING,
    InstanceState.DELETING,
    InstanceState.DELETED,
)


@both
async def test_init_returns_id_size_and_capabilities(yard: Yard, how: str) -> None:
    group = await yard.group(how, max_size=7, name="small")
    assert group.info is not None
    assert (group.info.id, group.info.max_size, group.info.version) == ("docker-machine/small", 7, "0.1.0")
    assert group.info.capabilities == {"heartbeat", "remuda.stats", "remuda.recover"}
    assert (await group.stats()).quota == 7
    assert await group.update() == {}


@both
async def test_machines_come_and_go(yard: Yard, how: str) -> None:
    group = await yard.group(
        how,
        machine_name="ci-%s",
        machine_options=["engine-label=a b", "--plain"],
        machine_options_with_name=["tags=Name,%s"],
    )
    yard.say("hold")
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) == {CREATING}
    yard.let("hold")
    one, other = await wait_for_states(group, lambda states: [*states.values()] == [RUNNING, RUNNING])
    assert one.startswith("remuda-ci-")
    assert f"create --driver stand-in --engine-label=a b --plain --tags=Name,{one} {one}" in yard.calls()
    assert await group.decrease([one, "nobody"]) == [one, "nobody"]
    await wait_for_states(group, lambda states: states == {other: RUNNING})
    assert yard.machines() == yard.records() == [other]
    with pytest.raises(PermanentError, match=f"there is no machine {one}"):
        await group.connect_info(one)
    assert await group.decrease([other]) == [other]
    await wait_for_states(group, lambda states: not states)
    assert yard.machines() == yard.records() == []
    assert yard.calls("rm")[-1] == f"rm -y {other}"
    await group.shutdown()


async def test_certificates_are_made_once_and_first(yard: Yard) -> None:
    groups = await asyncio.gather(*(yard.group(name=name) for name in ("a", "b", "c")))
    assert len(yard.calls("create --driver none")) == 1
    assert yard.calls()[0].startswith("create --driver none --url tcp://127.0.0.1:2376 remuda-certificates-")
    await asyncio.gather(*(group.increase(1) for group in groups))
    for group in groups:
        assert len(await wait_for_states(group, lambda states: [*states.values()] == [RUNNING])) == 1


async def test_a_program_that_fails_is_an_error_with_its_cause(yard: Yard) -> None:
    yard.say("refuse-create", "no space left on device")
    with pytest.raises(PermanentError, match="cannot make its certificates: exit code 3: no space left on device"):
        await yard.group()


@both
async def test_connect_info_is_read_from_docker_machines_files(yard: Yard, how: str) -> None:
    group = await yard.group(how, machine_options=["stand-in-address=10.9.8.7", "stand-in-port=2022"])
    [one] = await start_machines(group, 1)
    info = await group.connect_info(one)
    assert (info.address(), info.address(use_external=True)) == ("10.9.8.7", "10.9.8.7")
    assert (info.connector.port, info.connector.username, info.connector.key) == (2022, "docker-user", KEY.encode())
    assert (info.connector.os, info.connector.protocol) == ("linux", "ssh")


async def test_an_address_that_is_not_stored_is_asked_for_once(yard: Yard) -> None:
    group = await yard.group(machine_options=["stand-in-address="])
    [one] = await start_machines(group, 1)
    with pytest.raises(TemporaryError, match=f"{one} has no address yet"):
        await group.connect_info(one)
    yard.say("ip", "10.1.1.1\n")
    for _ in range(2):
        assert (await group.connect_info(one)).address() == "10.1.1.1"
    assert len(yard.calls("ip")) == 2


async def test_static_credentials_of_the_operator_are_used(yard: Yard) -> None:
    connector = Connector(use_static_credentials=True, username="ci", key=b"own", keepalive_seconds=7)
    group = await yard.group(settings=Settings(connector=connector))
    [one] = await start_machines(group, 1)
    made = (await group.connect_info(one)).connector
    assert (made.username, made.key, made.keepalive_seconds) == ("ci", b"own", 7)


async def test_a_driver_without_keys_needs_a_key_of_the_operator(yard: Yard) -> None:
    group = await yard.group()
    [one] = await start_machines(group, 1)
    (yard.store / "machines" / one / "id_rsa").unlink()
    with pytest.raises(PermanentError, match="set username and key_path in connector_config"):
        await group.connect_info(one)


async def test_a_machine_that_does_not_answer_is_unhealthy(yard: Yard, server: asyncio.Server) -> None:
    port = server.sockets[0].getsockname()[1]
    group = await yard.group(machine_options=[f"stand-in-port={port}"])
    [one] = await start_machines(group, 1)
    await group.heartbeat(one)
    assert yard.calls("ls") == []
    server.close()
    with pytest.raises(UnhealthyError, match=f"{one} does not answer at 127.0.0.1; docker-machine says of it: Stopped"):
        await group.heartbeat(one)
    with pytest.raises(UnhealthyError, match="there is no machine nobody"):
        await group.heartbeat("nobody")


@both
async def test_max_size_is_never_exceeded(yard: Yard, how: str) -> None:
    group = await yard.group(how, max_size=3)
    counts = await asyncio.gather(*(group.increase(2) for _ in range(3)))
    assert sum(counts) == 3
    assert len(await group.update()) == 3


async def test_create_at_once_is_never_exceeded(yard: Yard) -> None:
    group = await yard.group(create_at_once=1)
    yard.say("hold")
    assert await group.increase(3) == 3
    while len(yard.machines()) < 1:  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.02)
    assert len(yard.calls("create --driver stand-in")) == 1
    yard.let("hold")
    await wait_for_states(group, lambda states: [*states.values()] == [RUNNING] * 3)


@both
async def test_recover_returns_owners(yard: Yard, how: str) -> None:
    began = time.time()
    group = await yard.group(how)
    mine = await start_machines(group, 1)
    theirs = await yard.group(how, settings=Settings(owner="another/1"))
    assert await theirs.update() == {}
    assert await theirs.increase(1) == 1
    tags = {tag.instance: tag for tag in await group.recover()}
    assert tags[mine[0]].owner == OWNER
    assert sorted(tag.owner for tag in tags.values()) == ["another/1", OWNER]
    assert all(began - 1 <= (tag.created_at or 0) <= time.time() + 1 for tag in tags.values())
    assert list(await group.update()) == mine


async def test_machines_that_the_plugin_did_not_make_are_not_touched(yard: Yard) -> None:
    group = await yard.group()
    (yard.store / "machines" / "mine").mkdir(parents=True)
    assert await group.update() == {}
    assert await group.recover() == []
    assert await group.decrease(["mine"]) == ["mine"]
    await group.shutdown()
    assert yard.machines() == ["mine"]


@pytest.mark.parametrize(
    ("config", "text"),
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
async def test_a_wrong_setting_is_named(yard: Yard, config: dict[str, Any], text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        await yard.group(**config)


async def test_it_passes_the_conformance_suite(yard: Yard, server: asyncio.Server) -> None:
    config = yard.config(machine_options=[f"stand-in-port={server.sockets[0].getsockname()[1]}"])
    results = [result async for result in try_out(Trial(program=str(PROGRAM), config=config, end_seconds=30.0))]
    assert results
    assert [result for result in results if result.outcome is Outcome.FAILED] == []
    assert yard.machines() == yard.records() == []


def test_the_program_prints_its_schema(tmp_path: Path) -> None:
    printed = subprocess.run([str(PROGRAM), "schema"], capture_output=True, text=True, check=True).stdout
    assert "machine_options_with_name" in json.loads(printed)["$defs"]["Config"]["properties"]
