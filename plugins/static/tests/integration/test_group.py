"""Calls of the group, in the process of the tests and as the program that managers start."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.fleeting import (
    Connector,
    InProcess,
    InstanceState,
    PermanentError,
    Settings,
    TemporaryError,
    UnhealthyError,
)
from remuda.fleeting.conformance import Outcome, Trial, try_out
from remuda.fleeting.host import HostedGroup

PROGRAM = Path(sys.executable).parent / "fleeting-plugin-static"
both = pytest.mark.parametrize("kind", ["in process", "hosted"])
Group = InProcess | HostedGroup
MakeGroup = Callable[..., Awaitable[Group]]
RUNNING, DELETED = InstanceState.RUNNING, InstanceState.DELETED


def machine_list(address: str, *names: str) -> dict[str, Any]:
    return {name: {"internal_addr": address, "username": name} for name in names}


def machine_of(instance: str) -> str:
    return instance.rpartition("-")[0]


@both
async def test_init_returns_id_size_and_capabilities(make: MakeGroup, address: str, kind: str) -> None:
    group = await make(kind, instances=machine_list(address, "a", "b"), name="lab")
    assert group.info is not None
    assert (group.info.id, group.info.max_size, group.info.version) == ("static/lab", 2, "0.1.0")
    assert group.info.capabilities == {"heartbeat", "remuda.stats", "remuda.recover"}
    assert await group.update() == {}


@both
async def test_machines_are_handed_out_and_put_back(make: MakeGroup, address: str, kind: str) -> None:
    group = await make(kind, instances=machine_list(address, "a", "b", "c"))
    assert await group.increase(2) == 2
    instance, other_instance = await group.update()
    assert sorted([machine_of(instance), machine_of(other_instance)]) == ["a", "b"]
    for name in (instance, other_instance):
        await group.heartbeat(name)
        assert (await group.connect_info(name)).address() == address
    assert await group.increase(5) == 1
    assert await group.increase(1) == 0
    assert await group.decrease([instance, "nobody"]) == [instance, "nobody"]
    assert (await group.update())[instance] is DELETED
    assert instance not in await group.update()
    with pytest.raises(PermanentError, match="it was given back, or never handed out"):
        await group.connect_info(instance)
    # The machine gets a new id when it is handed out again, so that a late call with the old id does no harm.
    assert await group.increase(1) == 1
    new_instance = next(name for name in await group.update() if machine_of(name) == machine_of(instance))
    assert new_instance != instance
    await group.decrease([instance])
    assert new_instance in await group.update()


@both
async def test_a_new_process_returns_the_same_instances(make: MakeGroup, address: str, kind: str) -> None:
    began = time.time()
    first = await make(kind, instances=machine_list(address, "a", "b"))
    assert await first.increase(1) == 1
    states = await first.update()
    await first.close()
    second = await make(kind, instances=machine_list(address, "a", "b"))
    assert await second.update() == states
    assert await second.increase(2) == 1
    tags = await second.recover()
    assert {tag.instance for tag in tags} == set(await second.update())
    assert {tag.owner for tag in tags} == {"s_1/7"}
    assert all(began - 1 <= (tag.created_at or 0) <= time.time() + 1 for tag in tags)


async def test_a_machine_is_never_handed_out_twice(make: MakeGroup, address: str) -> None:
    mine = await make(instances=machine_list(address, "a", "b"))
    theirs = await make(instances=machine_list(address, "a", "b"), settings=Settings(owner="s_2/1"))
    assert await mine.increase(1) == 1
    assert (await theirs.stats()).quota == 1
    counts = await asyncio.gather(mine.increase(2), theirs.increase(2))
    assert sum(counts) == 1
    assert len(await mine.update()) + len(await theirs.update()) == 2
    assert sorted(tag.owner for tag in await mine.recover()) in (["s_1/7", "s_1/7"], ["s_1/7", "s_2/1"])
    # Any group can take back the instances of an owner that is gone.
    instances = [tag.instance for tag in await theirs.recover()]
    assert await theirs.decrease(instances) == instances
    assert await mine.update() == {}


async def test_two_configurations_may_use_the_same_name_for_different_machines(make: MakeGroup, address: str) -> None:
    mine = await make(instances=machine_list(address, "a"))
    host = address.replace("127.0.0.1", "localhost")
    theirs = await make(instances=machine_list(host, "a"), settings=Settings(owner="s_2/1"))
    assert [await mine.increase(1), await theirs.increase(1)] == [1, 1]


async def test_a_silent_machine_is_unhealthy_and_not_handed_out(
    make: MakeGroup, server: asyncio.Server, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    silent = {"internal_addr": "127.0.0.1:1"}
    group = await make(instances={"dead": silent} | machine_list(address, "a"))
    assert await group.increase(2) == 1
    assert "not handing out machines that do not answer: dead" in caplog.text
    with pytest.raises(TemporaryError, match="no machine that is free answers: dead"):
        await group.increase(1)
    [instance] = await group.update()
    server.close()
    with pytest.raises(UnhealthyError, match=f"{instance} does not answer at {address}"):
        await group.heartbeat(instance)


async def test_one_of_two_addresses_is_enough(make: MakeGroup, address: str) -> None:
    group = await make(instances={"a": {"internal_addr": "127.0.0.1:1", "external_addr": address}})
    assert await group.increase(1) == 1
    [instance] = await group.update()
    await group.heartbeat(instance)
    assert (await group.connect_info(instance)).address(use_external=True) == address


async def test_the_machine_that_was_returned_last_is_handed_out_last(make: MakeGroup, address: str) -> None:
    group = await make(instances=machine_list(address, "a", "b"))
    machines = []
    for _ in range(4):
        await group.increase(1)
        [instance] = [name for name, state in (await group.update()).items() if state is RUNNING]
        await group.decrease([instance])
        machines.append(machine_of(instance))
    assert machines == ["a", "b", "a", "b"]


async def test_login_settings_of_machine_replace_the_connectors(make: MakeGroup, address: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"its own key")
    key_login = {"username": "ci", "key_path": str(tmp_path / "key")}
    instances = {"a": key_login, "b": {"username": "ci", "password": "pass"}, "c": {}}
    connector = Connector(username="root", password="general", key=b"general key", keepalive_seconds=7)
    group = await make(
        instances={name: {"internal_addr": address} | login for name, login in instances.items()},
        settings=Settings(connector=connector),
    )
    assert await group.increase(3) == 3
    connectors = {
        machine_of(instance): (await group.connect_info(instance)).connector for instance in await group.update()
    }
    logins = {name: (login.username, login.password, login.key) for name, login in connectors.items()}
    assert logins == {
        "a": ("ci", "", b"its own key"),
        "b": ("ci", "pass", b""),
        "c": ("root", "general", b"general key"),
    }
    assert {(login.os, login.protocol, login.keepalive_seconds) for login in connectors.values()} == {
        ("linux", "ssh", 7)
    }


async def test_a_machine_that_is_not_configured_any_more_can_be_put_back(make: MakeGroup, address: str) -> None:
    first = await make(instances=machine_list(address, "a"))
    await first.increase(1)
    group = await make(instances=machine_list(address, "b"))
    [instance] = await group.update()
    with pytest.raises(UnhealthyError, match=r"a, the machine of a-.*, is not in instances any more"):
        await group.heartbeat(instance)
    assert await group.decrease([instance]) == [instance]
    assert await group.update() == {instance: DELETED}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "instances is empty: list the machines"),
        ({"instances": {"a": {}}}, "instances.a has neither internal_addr nor external_addr"),
        ({"instances": {"a": {"internal_addr": "h:x"}}}, "instances.a: the address 'h:x' has an invalid port"),
        ({"instances": {"a": {"internal_adr": "h"}}}, "internal_adr"),
        ({"instances": {"a/b": {"internal_addr": "h"}}}, "a machine called 'a/b'"),
        ({"instances": {"a": {"internal_addr": "h", "key_path": "/nowhere"}}}, "instances.a.key_path = '/nowhere'"),
        ({"instances": {"a": {"internal_addr": "h"}}, "folder": "here"}, "an absolute path"),
        ({"instanced": {}}, "did you mean instances"),
    ],
)
async def test_error_messages_for_wrong_settings(make: MakeGroup, config: dict[str, Any], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        await make(**config)


async def test_an_unknown_protocol_is_refused(make: MakeGroup, address: str) -> None:
    settings = Settings(connector=Connector(protocol="telnet"))
    with pytest.raises(PermanentError, match="protocol = 'telnet'"):
        await make(instances=machine_list(address, "a"), settings=settings)


async def test_it_passes_the_conformance_suite(address: str, tmp_path: Path) -> None:
    config = {"instances": machine_list(address, "a", "b"), "folder": str(tmp_path / "state")}
    trial = Trial(program=str(PROGRAM), config=config, end_seconds=30.0)
    results = [result async for result in try_out(trial)]
    assert results
    assert [result for result in results if result.outcome is Outcome.FAILED] == []


def test_the_program_prints_its_schema() -> None:
    output = subprocess.run([str(PROGRAM), "schema"], capture_output=True, text=True, check=True).stdout
    assert set(json.loads(output)["$defs"]["Config"]["properties"]) == {"instances", "name", "folder"}
