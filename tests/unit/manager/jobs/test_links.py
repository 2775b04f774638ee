"""Links are opened on first use, shared, and closed some time after the last user released them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from remuda.lib.clock import VirtualClock
from remuda.manager.jobs.links import LINGER_SECONDS, Links
from remuda.testing.environment import FakeEnvironment


async def test_a_link_is_closed_some_time_after_its_last_user_released_it(tmp_path: Path) -> None:
    clock, environment = VirtualClock(), FakeEnvironment(tmp_path, machines=("one", "two"))
    started: list[str] = []
    async with asyncio.TaskGroup() as group:

        def start(name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
            started.append(name)
            return group.create_task(_run(work), name=name)

        links = Links(clock, start)
        first = links.use(environment, "one")
        assert links.use(environment, "one") is first
        assert links.use(environment, "two") is not first
        await first.connected.wait()
        links.let_go(first)
        await clock.advance(LINGER_SECONDS)
        links.close_idle()
        assert first in list(links)
        links.let_go(first)
        links.close_idle()
        assert first in list(links)
        assert links.use(environment, "one") is first
        links.let_go(first)
        await clock.advance(LINGER_SECONDS)
        links.close_idle()
        assert [link.machine for link in links] == ["two"]
        reopened = links.use(environment, "one")
        assert reopened is not first
        links.close()
        links.let_go(reopened)
    assert started == ["agent link to one", "agent link to two", "agent link to one"]
    await environment.remove()


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
