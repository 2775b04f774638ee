"""What every instance group promises, in our process or in one of its own."""

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
    Settings,
    TemporaryError,
    UnhealthyError,
    UnsupportedError,
)
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import PlainGroup, TableGroup, a_plugin

Group = InProcess | HostedGroup
Make = Callable[..., Awaitable[tuple[Group, ProviderInfo]]]
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
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes groups that are closed in the end; `kind` and the configuration."""
    async with AsyncExitStack() as stack:

        async def made(kind: type[PlainGroup] = TableGroup, **config: Any) -> tuple[Group, ProviderInfo]:
            group: Group
            if request.param == "in process":
                group = InProcess(kind())
            else:
                group = HostedGroup(str(a_plugin(tmp_path, kind)), auto_mtls="TLS" in request.param)
            stack.push_async_callback(group.close)
            return group, await group.init(config, SETTINGS)

        yield made


async def two_running(group: Group) -> list[str]:
    assert await group.increase(2) == 2
    await group.update()
    found = await group.update()
    assert set(found.values()) == {InstanceState.RUNNING}
    return list(found)


async def test_it_says_what_it_is(make: Make) -> None:
    _, info = await make(max_size=7)
    assert (info.id, info.max_size, info.version, info.build_info) == ("test/table", 7, "1.2.3", "built by hand")
    assert info.capabilities == {"heartbeat", "suspend_resume", "remuda.stats", "remuda.recover"}


async def test_instances_come_and_go(make: Make) -> None:
    group, _ = await make()
    assert await group.update() == {}
    assert await group.increase(2) == 2
    assert set((await group.update()).values()) == {InstanceState.CREATING}
    first, second = await group.update()
    assert await group.decrease([first]) == [first]
    assert await group.update() == {first: InstanceState.DELETING, second: InstanceState.RUNNING}
    assert await group.update() == {second: InstanceState.RUNNING}
    await group.shutdown()


async def test_half_a_success_is_counted_right(make: Make) -> None:
    group, _ = await make(accepts=1)
    assert await group.increase(3) == 1
    assert len(await group.update()) == 1
    assert await group.increase(1) == 1
    names = list(await group.update())
    assert await group.decrease(names) == names[:1]


async def test_how_to_connect_is_what_the_operator_said(make: Make) -> None:
    group, _ = await make(address="10.1.2.3:2022")
    one, _ = await two_running(group)
    info = await group.connect_info(one)
    assert info.connector == SETTINGS.connector
    assert info.address() == "10.1.2.3:2022"
    assert info.expires_at is None
    assert "secret" not in repr(info)
    with pytest.raises(TemporaryError, match="no instance nobody"):
        await group.connect_info("nobody")


async def test_a_heartbeat_says_who_is_not_well(make: Make) -> None:
    group, _ = await make()
    one, _ = await two_running(group)
    await group.heartbeat(one)
    with pytest.raises(UnhealthyError, match="nobody is gone"):
        await group.heartbeat("nobody")


async def test_instances_can_be_suspended(make: Make) -> None:
    group, _ = await make()
    one, other = await two_running(group)
    assert await group.suspend([one, "nobody"]) == [one]
    assert await group.update() == {one: InstanceState.SUSPENDED, other: InstanceState.RUNNING}
    assert await group.resume([one]) == [one]
    assert await group.update() == {one: InstanceState.RUNNING, other: InstanceState.RUNNING}


async def test_the_quota_and_the_owners_are_known(make: Make) -> None:
    group, _ = await make(max_size=3)
    names = await two_running(group)
    stats = await group.stats()
    assert (stats.quota, stats.hourly_price) == (3, None)
    found = await group.recover()
    assert {one.instance for one in found} == set(names)
    assert {(one.owner, one.created_at) for one in found} == {(SETTINGS.owner, 1_750_000_000.0)}


async def test_what_a_group_does_not_have_is_said(make: Make) -> None:
    group, info = await make(PlainGroup)
    assert info.capabilities == frozenset()
    await group.heartbeat("anybody")
    for call in (lambda: group.suspend(["a"]), lambda: group.resume(["a"]), group.stats, group.recover):
        with pytest.raises(UnsupportedError, match="does not have"):
            await call()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"max_sise": 1}, "there is no setting max_sise; did you mean max_size"),
        ({"wholly": "other"}, "known are: max_size, accepts, broken, address"),
        ({"max_size": "many"}, "max_size"),
    ],
)
async def test_a_wrong_setting_is_named(make: Make, config: Mapping[str, Any], text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        await make(**config)


@pytest.mark.parametrize("method", ["update", "increase", "decrease"])
async def test_a_fault_of_the_plugin_may_pass(make: Make, method: str) -> None:
    group, _ = await make(broken=[method])
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "update": group.update,
        "increase": lambda: group.increase(1),
        "decrease": lambda: group.decrease(["a"]),
    }
    with pytest.raises(TemporaryError, match=f"{method} is broken"):
        await calls[method]()
    await group.shutdown()
