"""Contract tests for providers, which are plugins that scale by themselves: in the same process and as a program."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from remuda.fleeting import InProcess, Provides, Settings, UnsupportedError, Wanted, Wishes
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import TableGroup, a_plugin, a_program
from remuda.testing.providers import TableProvider

Group = InProcess | HostedGroup


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
