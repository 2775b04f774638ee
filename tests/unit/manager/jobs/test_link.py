"""Reconnection of a link to an agent, and its error before the first connection."""

import asyncio
from pathlib import Path

import pytest

from remuda.lib.clock import VirtualClock
from remuda.manager.errors import ConnectingError, EnvironmentTemporaryError
from remuda.manager.jobs.link import STEADY_SECONDS, AgentLink
from remuda.testing.environment import FakeEnvironment
from remuda.wire.agent_client import AgentClient, AgentUnavailableError


class NonWaitingClock(VirtualClock):
    """Returns from `sleep` at once and records the durations."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.waited = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.waited.set()
        self.jump(seconds)
        await asyncio.sleep(0)


async def test_waits_grow_while_an_agent_dies_at_once_and_restart_after_a_steady_connection(tmp_path: Path) -> None:
    clock, environment = NonWaitingClock(), FakeEnvironment(tmp_path)

    async def die_early(_link: AgentLink, _client: AgentClient) -> None:
        if len(clock.waits) < 8:
            raise AgentUnavailableError("it died")

    link = AgentLink(environment, "fake", clock, inspect=die_early)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        running = group.create_task(link.run(), name="link")
        await link.connected.wait()
        early = list(clock.waits)
        clock.waited.clear()
        clock.jump(STEADY_SECONDS)
        await environment.machines["fake"].die()
        await clock.waited.wait()
        running.cancel()
    assert early[-1] > 2.0
    assert clock.waits[len(early)] < 0.1
    await environment.remove()


async def test_connecting_for_the_first_time_is_a_separate_error(tmp_path: Path) -> None:
    environment = FakeEnvironment(tmp_path)
    link = AgentLink(environment, "fake", VirtualClock())
    with pytest.raises(ConnectingError):
        link.require_connection()
    link.problem = "it denies the login"
    with pytest.raises(EnvironmentTemporaryError, match="denies the login") as caught:
        link.require_connection()
    assert not isinstance(caught.value, ConnectingError)
    link.connected.set()
    link.require_connection()
    await environment.remove()
