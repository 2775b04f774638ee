"""Output of a shell on its way to the cell: nothing is lost or sent twice when calls fail, and a full window blocks the
shell. Also the polls for shell requests."""

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
from remuda.manager.jobs import shell as shells
from remuda.manager.jobs.runners import ServedRunner
from remuda.testing.environment import FakeEnvironment
from remuda.wire.http_session import Answer, HttpSession
from remuda.wire.runner_api import RunnerInfo
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError, Server
from remuda.wire.shell_client import ShellClient, Taken


class Cell(ShellClient):
    """Stores output like a cell. `outcomes` has a letter per call: t (accepted), l (accepted, but the answer is lost),
    f (the request is lost), b (nothing is accepted), o (the shell is over)."""

    def __init__(self, outcomes: str = "") -> None:
        self.stored = b""
        self.outcomes = list(outcomes)
        self.calls = 0

    async def output(self, shell: str, start: int, data: bytes) -> Taken:
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "t"
        assert start <= len(self.stored), "gap in the output"
        assert self.stored[start : start + len(data)] == data[: len(self.stored) - start], "a retry sent other bytes"
        if outcome in "tl":
            self.stored = self.stored[:start] + data
        if outcome in "lf":
            raise RunnerApiTemporaryError("no route")
        return Taken(size=len(self.stored), is_over=outcome == "o")


async def send(cell: Cell, pieces: list[bytes]) -> None:
    clock = VirtualClock()
    output = shells._Output(cell, "s", clock)
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
    outcomes=st.text(alphabet="tlfb", max_size=12),
)
def test_everything_arrives_once(pieces: list[bytes], outcomes: str) -> None:
    cell = Cell(outcomes)
    asyncio.run(send(cell, pieces))
    assert cell.stored == b"".join(pieces)


async def test_waiting_output_is_sent_in_one_call() -> None:
    cell = Cell()
    await send(cell, [b"x"] * 1000)
    assert cell.stored == b"x" * 1000
    assert cell.calls == 1


async def test_output_of_a_closed_shell_ends_with_an_error() -> None:
    output = shells._Output(Cell("o"), "s", VirtualClock())
    with pytest.raises(shells._OverError):
        await output.finish("because")


async def test_adding_output_waits_while_the_window_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shells, "WINDOW_BYTES", 10)
    cell = Cell()
    output = shells._Output(cell, "s", VirtualClock())
    await output.add(b"x" * 11)
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(output.add(b"y"))
        await asyncio.sleep(0)
        assert not adding.done()
        sending = tasks.create_task(output.run())
        await adding
        await output.flush()
        sending.cancel()
    assert cell.stored == b"x" * 11 + b"y"


class SilentSession(HttpSession):
    """Requests that never get an answer."""

    def __init__(self) -> None:
        super().__init__({})
        self.requested = asyncio.Event()

    @asynccontextmanager
    async def request(self, *_: Any, **__: Any) -> AsyncIterator[Answer]:
        self.requested.set()
        yield await asyncio.get_running_loop().create_future()


def create_runner(session: SilentSession, environment: FakeEnvironment) -> ServedRunner:
    config = RunnerConfig(url="http://127.0.0.1:1", token="glrt-abcdefghijkl", executor="shell")
    server = Server(url=config.url, session=session, clock=VirtualClock())
    client = RunnerClient(server, token=config.token, system_id="s", info=RunnerInfo())
    return ServedRunner(config, client, environment)


async def test_polls_of_a_runner_start_again_after_a_failure(tmp_path: Path) -> None:
    clock, session, environment = VirtualClock(), SilentSession(), FakeEnvironment(tmp_path)
    runner = create_runner(session, environment)
    runner.client.is_remuda.set()
    should_fail = True

    def runners() -> list[ServedRunner]:
        nonlocal should_fail
        if session.requested.is_set() and should_fail:
            should_fail = False
            raise RuntimeError("unexpected error")
        return [runner]

    requests = shells.ShellRequests(clock, runners=runners, jobs={})
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        failing = tasks.create_task(run_until_failure(requests))
        await session.requested.wait()
        await clock.advance(shells.LOOK_SECONDS)
        await failing
        session.requested.clear()
        restarted = tasks.create_task(requests.run())
        await session.requested.wait()
        restarted.cancel()
    await environment.remove()


async def run_until_failure(requests: shells.ShellRequests) -> None:
    with pytest.raises(ExceptionGroup):
        await requests.run()


async def test_a_runner_that_is_replaced_before_the_first_answer_is_polled(tmp_path: Path) -> None:
    clock, session, environment = VirtualClock(), SilentSession(), FakeEnvironment(tmp_path)
    old, new = create_runner(session, environment), create_runner(session, environment)
    runners = [old]
    requests = shells.ShellRequests(clock, runners=lambda: runners, jobs={})
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(requests.run())
        await clock.advance(shells.LOOK_SECONDS)
        runners[:] = [new]
        new.client.is_remuda.set()
        await clock.advance(shells.LOOK_SECONDS)
        await session.requested.wait()
        running.cancel()
    await environment.remove()
