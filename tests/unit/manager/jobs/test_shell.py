"""Output on its way to the cell: nothing is lost or sent twice, whatever the way does; a slow cell is waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.lib.clock import VirtualClock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.jobs import shell as looking
from remuda.manager.jobs.runners import ServedRunner
from remuda.testing.environment import FakeEnvironment
from remuda.wire.http_session import Answer, HttpSession
from remuda.wire.runner_api import RunnerInfo
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError, Server
from remuda.wire.shell_client import ShellClient, Taken


class Cell(ShellClient):
    """Keeps bytes as a cell does; `moods` say what becomes of each call."""

    def __init__(self, moods: str = "") -> None:
        self.kept = b""
        self.moods = list(moods)
        self.calls = 0

    async def output(self, shell: str, start: int, data: bytes) -> Taken:
        self.calls += 1
        mood = self.moods.pop(0) if self.moods else "t"
        assert start <= len(self.kept), "a gap"
        assert self.kept[start : start + len(data)] == data[: len(self.kept) - start], "other bytes than before"
        if mood in "tl":
            self.kept = self.kept[:start] + data
        if mood in "lf":  # the answer is lost, or the request was
            raise RunnerApiTemporaryError("no route")
        return Taken(size=len(self.kept), is_over=mood == "o")


async def carried(cell: Cell, pieces: list[bytes]) -> None:
    clock = VirtualClock()
    output = looking._Output(cell, "s", clock)
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(output.run())
        for piece in pieces:
            await output.add(piece)
        waiting = tasks.create_task(output.flush())
        while not waiting.done():
            await clock.advance(1)
        sending.cancel()


@settings(deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=300)),
    moods=st.text(alphabet="tlfb", max_size=12),
)
def test_everything_arrives_once(pieces: list[bytes], moods: str) -> None:
    cell = Cell(moods)
    asyncio.run(carried(cell, pieces))
    assert cell.kept == b"".join(pieces)


async def test_what_waits_goes_together() -> None:
    cell = Cell()
    await carried(cell, [b"x"] * 1000)
    assert cell.kept == b"x" * 1000
    assert cell.calls == 1


async def test_a_shell_that_is_over_is_given_up() -> None:
    output = looking._Output(Cell("o"), "s", VirtualClock())
    with pytest.raises(looking._OverError):
        await output.finish("because")


async def test_whoever_prints_waits_for_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "WINDOW_BYTES", 10)
    cell = Cell()
    output = looking._Output(cell, "s", VirtualClock())
    await output.add(b"x" * 11)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(output.add(b"y"))
        await asyncio.sleep(0)
        assert not adding.done()
        sending = tasks.create_task(output.run())
        await adding
        await output.flush()
        sending.cancel()
    assert cell.kept == b"x" * 11 + b"y"


class Silent(HttpSession):
    """A server that answers nobody."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked = asyncio.Event()

    @asynccontextmanager
    async def request(self, *_: Any, **__: Any) -> AsyncIterator[Answer]:
        self.asked.set()
        yield await asyncio.get_running_loop().create_future()


def served(session: Silent, environment: FakeEnvironment) -> ServedRunner:
    config = RunnerConfig(url="http://127.0.0.1:1", token="glrt-abcdefghijkl", executor="shell")
    server = Server(url=config.url, session=session, clock=VirtualClock())
    client = RunnerClient(server, token=config.token, system_id="s", info=RunnerInfo())
    return ServedRunner(config, client, environment)


async def test_the_watch_of_a_runner_is_begun_anew_after_a_failure(tmp_path: Path) -> None:
    clock, session, environment = VirtualClock(), Silent(), FakeEnvironment(tmp_path)
    runner = served(session, environment)
    runner.client.is_remuda.set()
    fails = True

    def runners() -> list[ServedRunner]:
        nonlocal fails
        if session.asked.is_set() and fails:
            fails = False
            raise RuntimeError("nobody foresaw this")
        return [runner]

    part = looking.ShellRequests(clock, runners=runners, jobs={})
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        failing = tasks.create_task(_failed(part))
        await session.asked.wait()
        await clock.advance(looking.LOOK_SECONDS)
        await failing
        session.asked.clear()
        again = tasks.create_task(part.run())
        await session.asked.wait()
        again.cancel()
    await environment.remove()


async def _failed(part: looking.ShellRequests) -> None:
    with pytest.raises(ExceptionGroup):
        await part.run()


async def test_a_runner_that_is_configured_anew_before_its_server_spoke_is_watched_all_the_same(tmp_path: Path) -> None:
    clock, session, environment = VirtualClock(), Silent(), FakeEnvironment(tmp_path)
    old, new = served(session, environment), served(session, environment)
    runners = [old]
    part = looking.ShellRequests(clock, runners=lambda: runners, jobs={})
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(part.run())
        await clock.advance(looking.LOOK_SECONDS)
        runners[:] = [new]
        new.client.is_remuda.set()
        await clock.advance(looking.LOOK_SECONDS)
        await session.asked.wait()
        running.cancel()
    await environment.remove()
