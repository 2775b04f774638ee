"""Contract tests of instance groups and of the provider on top of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from remuda.fleeting import (
    Connector,
    InProcess,
    InstanceState,
    PermanentError,
    ProviderInfo,
    Provides,
    Settings,
    TemporaryError,
    UnhealthyError,
    UnsupportedError,
    Wanted,
    Wishes,
)
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import PlainGroup, TableGroup, a_plugin, a_program
from remuda.testing.providers import TableProvider

Group = InProcess | HostedGroup
MakeGroup = Callable[..., Awaitable[tuple[Group, ProviderInfo]]]
KEY = b"-----BEGIN PRIVATE KEY-----\n\xff\n"
SETTINGS = Settings(
    connector=Connector(
        os="linux",
        arch="amd64",
        protocol="ssh",
        port=2222,
        username="ci",
        password="secret",
        key=KEY,
        use_static_credentials=True,
        keepalive_seconds=12.5,
        timeout_seconds=90.0,
    ),
    owner="s_1/7",
)


@pytest.fixture(params=["in process", "hosted", "hosted with TLS"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeGroup]:
    """A function that makes a group of this kind with this configuration; groups are closed after the test."""
    async with AsyncExitStack() as stack:

        async def make_group(kind: type[PlainGroup] = TableGroup, **config: Any) -> tuple[Group, ProviderInfo]:
            group: Group
            if request.param == "in process":
                group = InProcess(kind())
            else:
                group = HostedGroup(str(a_plugin(tmp_path, kind)), auto_mtls="TLS" in request.param)
            stack.push_async_callback(group.close)
            return group, await group.init(config, SETTINGS)

        yield make_group


async def start_two(group: Group) -> list[str]:
    assert await group.increase(2) == 2
    await group.update()
    states = await group.update()
    assert set(states.values()) == {InstanceState.RUNNING}
    return list(states)


async def test_init_returns_id_size_version_and_capabilities(make: MakeGroup) -> None:
    _, info = await make(max_size=7)
    assert (info.id, info.max_size, info.version, info.build_info) == ("test/table", 7, "1.2.3", "built by hand")
    assert info.capabilities == {"heartbeat", "suspend_resume", "remuda.stats", "remuda.recover"}


async def test_instances_are_created_and_deleted(make: MakeGroup) -> None:
    group, _ = await make()
    assert await group.update() == {}
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) == {InstanceState.CREATING}
    first, second = await group.update()
    assert await group.decrease([first]) == [first]
    assert await group.update() == {first: InstanceState.DELETING, second: InstanceState.RUNNING}
    assert await group.update() == {second: InstanceState.RUNNING}
    await group.shutdown()


async def test_partial_success_returns_the_accepted_number(make: MakeGroup) -> None:
    group, _ = await make(accepts=1)
    assert await group.increase(3) == 1
    assert len(await group.update()) == 1
    assert await group.increase(1) == 1
    names = list(await group.update())
    assert await group.decrease(names) == names[:1]


async def test_connect_info_has_the_operators_login(make: MakeGroup) -> None:
    group, _ = await make(address="10.1.2.3:2022")
    instance, _ = await start_two(group)
    info = await group.connect_info(instance)
    assert info.connector == SETTINGS.connector
    assert info.address() == "10.1.2.3:2022"
    assert info.expires_at is None
    assert "secret" not in repr(info)
    with pytest.raises(TemporaryError, match="no instance nobody"):
        await group.connect_info("nobody")


async def test_heartbeat_of_a_missing_instance_is_an_error(make: MakeGroup) -> None:
    group, _ = await make()
    instance, _ = await start_two(group)
    await group.heartbeat(instance)
    with pytest.raises(UnhealthyError, match="nobody is gone"):
        await group.heartbeat("nobody")


async def test_instances_can_be_suspended_and_resumed(make: MakeGroup) -> None:
    group, _ = await make()
    instance, other = await start_two(group)
    assert await group.suspend([instance, "nobody"]) == [instance]
    assert await group.update() == {instance: InstanceState.SUSPENDED, other: InstanceState.RUNNING}
    assert await group.resume([instance]) == [instance]
    assert await group.update() == {instance: InstanceState.RUNNING, other: InstanceState.RUNNING}


async def test_stats_and_recover_return_quota_and_owners(make: MakeGroup) -> None:
    group, _ = await make(max_size=3)
    names = await start_two(group)
    stats = await group.stats()
    assert (stats.quota, stats.hourly_price) == (3, None)
    tags = await group.recover()
    assert {tag.instance for tag in tags} == set(names)
    assert {(tag.owner, tag.created_at) for tag in tags} == {(SETTINGS.owner, 1_750_000_000.0)}


async def test_missing_abilities_are_unsupported(make: MakeGroup) -> None:
    group, info = await make(PlainGroup)
    assert info.capabilities == frozenset()
    await group.heartbeat("anybody")
    for call in (lambda: group.suspend(["a"]), lambda: group.resume(["a"]), group.stats, group.recover):
        with pytest.raises(UnsupportedError, match="does not have"):
            await call()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_sise": 1}, "there is no setting max_sise; did you mean max_size"),
        ({"wholly": "other"}, "known are: max_size, accepts, broken, address"),
        ({"max_size": "many"}, "max_size"),
    ],
)
async def test_error_messages_for_wrong_settings(make: MakeGroup, config: Mapping[str, Any], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        await make(**config)


@pytest.mark.parametrize("method", ["update", "increase", "decrease"])
async def test_an_exception_in_the_plugin_is_a_temporary_error(make: MakeGroup, method: str) -> None:
    group, _ = await make(broken=[method])
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "update": group.update,
        "increase": lambda: group.increase(1),
        "decrease": lambda: group.decrease(["a"]),
    }
    with pytest.raises(TemporaryError, match=f"{method} is broken"):
        await calls[method]()
    await group.shutdown()


@pytest.fixture(params=["in process", "hosted"])
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Group]:
    """A provider with room for two jobs."""
    group: Group
    if request.param == "in process":
        group = InProcess(TableProvider())
    else:
        text = f"#!/bin/sh\nexec {sys.executable} -m remuda.testing.providers\n"
        group = HostedGroup(str(a_program(tmp_path, text, name="fleeting-plugin-table-provider")))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(group.close)
        info = await group.init({"max_size": 2}, Settings())
        assert "remuda.provider" in info.capabilities
        yield group


async def test_a_holder_has_one_instance(provider: Group) -> None:
    assert isinstance(provider, Provides)
    first = await provider.acquire("a", key="linux", caches=["x"])
    assert await provider.acquire("a") == first
    assert await provider.acquire("b") != first
    assert set(await provider.update()) == {first, await provider.acquire("b")}
    assert (await provider.connect_info(first)).internal_addr == "10.0.0.1"


async def test_acquire_waits_until_there_is_room(provider: Group) -> None:
    await provider.acquire("a")
    await provider.acquire("b")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(provider.acquire("c"), name="third")
        await provider.release("nobody")
        assert not waiting.done()
        await provider.release("a")
    assert waiting.result() in await provider.update()


async def test_a_cancelled_acquire_holds_nothing(provider: Group) -> None:
    await provider.acquire("a")
    await provider.acquire("b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await provider.acquire("c")
    await provider.release("a")
    room = await provider.room(Wishes(held={"b": await provider.acquire("b")}, is_complete=True))
    assert room.explanation == "1 in use, 1 ahead, 2 at most"


async def test_room_takes_the_demand_and_the_held_instances(provider: Group) -> None:
    wanted = [Wanted(key="linux", running=1, waiting=2, ready=3, soon=4)]
    room = await provider.room(Wishes(wanted=wanted, open_requests=5, held={"old": "m9"}, is_complete=False))
    assert room.capacity == 2
    assert await provider.acquire("old") == "m9"
    await provider.room(Wishes(is_complete=True))
    assert (await provider.room(Wishes(is_complete=True))).explanation.startswith("0 in use")


@pytest.mark.parametrize("is_hosted", [False, True])
async def test_a_group_without_the_capability_is_no_provider(tmp_path: Path, is_hosted: bool) -> None:
    group = HostedGroup(str(a_plugin(tmp_path, TableGroup))) if is_hosted else InProcess(TableGroup())
    try:
        info = await group.init({}, Settings())
        assert "remuda.provider" not in info.capabilities
        with pytest.raises(UnsupportedError, match=r"remuda\.provider"):
            await group.acquire("a")
    finally:
        await group.close()
