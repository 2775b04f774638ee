"""Opens groups of real plugins for tests, in this process or in the plugin's own, and waits for their machines."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from remuda.fleeting import InProcess, InstanceState, Plugin, Settings, TemporaryError
from remuda.fleeting.host import HostedGroup
from remuda.lib.backoff import Backoff

OWNER = "s_0123456789ab/7"
Group = InProcess | HostedGroup


class PluginGroups:
    """Opens groups, and closes them with the block."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(
        self, how: str, plugin: Plugin[Any], program: Path, config: Mapping[str, Any], settings: Settings | None
    ) -> Group:
        """Open a group, `in process` with `plugin` or `hosted` with `program`."""
        group: Group
        if how == "in process":
            group = InProcess(plugin)
        else:
            group = HostedGroup(str(program), backoff=Backoff(first_seconds=0.05, ceiling_seconds=0.2))
        self._stack.push_async_callback(_close, group)
        await group.init(config, settings or Settings(owner=OWNER))
        return group


async def _close(group: Group) -> None:
    if isinstance(group, InProcess) and group.info is not None:
        await group.shutdown()
    await group.close()


async def until(group: Group, true: Callable[[Mapping[str, InstanceState]], bool], seconds: float = 60) -> list[str]:
    """Update the group until `true` holds, and return its machines. A plugin that was killed may fail meanwhile."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                states = await group.update()
            except TemporaryError:
                states = None
            if states is not None and true(states):
                return list(states)
            await asyncio.sleep(0.02)


async def start_machines(group: Group, count: int) -> list[str]:
    """Request machines and wait until all run."""
    assert await group.increase(count) == count
    return await until(group, lambda states: [*states.values()] == [InstanceState.RUNNING] * count)
