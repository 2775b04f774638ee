"""Fixtures: a server that accepts connections, and groups of machines that are closed at the end of a test."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from remuda.fleeting import InProcess, Settings
from remuda.fleeting.host import HostedGroup
from remuda_plugin_static import StaticGroup

PROGRAM = Path(sys.executable).parent / "fleeting-plugin-static"
Group = InProcess | HostedGroup


@pytest.fixture
async def server() -> AsyncIterator[asyncio.Server]:
    """A server that accepts connections, in place of machines."""
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        yield server


@pytest.fixture
def address(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Group]]]:
    """A function that makes groups, `in process` or `hosted`, with one shared folder."""
    async with AsyncExitStack() as stack:

        async def make_group(kind: str = "in process", *, settings: Settings | None = None, **config: Any) -> Group:
            group: Group = InProcess(StaticGroup()) if kind == "in process" else HostedGroup(str(PROGRAM))
            stack.push_async_callback(group.close)
            config = {"folder": str(tmp_path / "state"), **config}
            await group.init(config, settings or Settings(owner="s_1/7"))
            return group

        yield make_group
