"""Environments with machines under a configuration that changes, and the question for a server's demand."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

import pytest

from remuda.fleeting.errors import TemporaryError
from remuda.manager.config import RunnerConfig
from remuda.manager.errors import ConfigError
from remuda.manager.ports import Environment
from remuda.manager.room import Room
from remuda.manager.runners import ServedRunner
from remuda.manager.scaling import CellDemand, Scaled, Scaling
from remuda.taskscaler.loop import FleetSetup, ScalerStatus
from remuda.taskscaler.loop.sweep import Swept
from remuda.wire.runner_client import OwnReply, RunnerClient, RunnerReply


class _Fleet:
    """What `Scaling` sees of an environment; its setups are named after runners."""

    is_closed = False

    def __init__(self, name: str) -> None:
        self.demand: CellDemand | None = None
        self.runner = RunnerConfig(name=name)
        self.setup = FleetSetup(name=name, owner=name, groups=(), rules=())
        self.is_discarded = False

    def setup_for(self, runner: RunnerConfig) -> FleetSetup:
        if runner.name == "broken":
            raise ConfigError("its key cannot be read")
        return FleetSetup(name=runner.name, owner=runner.name, groups=(), rules=())

    def change(self, runner: RunnerConfig, setup: FleetSetup) -> None:
        self.setup = setup

    def discard(self) -> None:
        self.is_discarded = True

    async def run(self) -> None:
        await asyncio.Event().wait()

    def hear(self, taken: int) -> None: ...

    def recovered(self) -> None: ...

    def drain(self, *, is_draining: bool) -> None: ...

    def look(self) -> None: ...

    def status(self) -> ScalerStatus:
        raise NotImplementedError

    async def sweep(self, owners: Collection[str], *, remove: bool) -> Swept:
        raise NotImplementedError


class _Server:
    """A server that answers the question who it is with these numbers, one after the other."""

    system_id = "s_1"

    def __init__(self, *statuses: int, is_cell: bool) -> None:
        self._statuses = list(statuses)
        self._is_cell = is_cell
        self.is_remuda = asyncio.Event()
        self.asked = 0

    async def verify(self) -> RunnerReply:
        self.asked += 1
        status = self._statuses.pop(0)
        if status == 200 and self._is_cell:
            self.is_remuda.set()
        return RunnerReply(status=status, message="" if status == 200 else "go away")

    async def own(self, method: str, path: str, *, endpoint: str) -> OwnReply:
        return OwnReply(status=200, headers={}, body=b"{}")


def _environment(fleet: _Fleet) -> Environment:
    assert isinstance(fleet, Scaled)
    return cast("Environment", fleet)


def _served(fleet: _Fleet, name: str) -> ServedRunner:
    client = cast("RunnerClient", _Server(is_cell=False))
    return ServedRunner(RunnerConfig(name=name, token=name), client, _environment(fleet))


def _starter(tasks: asyncio.TaskGroup) -> Callable[[str, Callable[[], Awaitable[None]]], "asyncio.Task[None]"]:
    return lambda name, work: tasks.create_task(cast("Any", work()), name=name)


async def test_a_configuration_that_one_runner_cannot_have_changes_none() -> None:
    room = Room(concurrent=1, limits={})
    async with asyncio.TaskGroup() as tasks:
        scaling = Scaling(_starter(tasks))
        fleets = [_Fleet("old"), _Fleet("old")]
        scaling.serve([_served(fleets[0], "one"), _served(fleets[1], "two")], room)
        assert [one.setup.name for one in fleets] == ["one", "two"]
        known, hearers = scaling.fleets, room.hearers
        with pytest.raises(ConfigError):
            scaling.serve([_served(fleets[0], "new"), _served(fleets[1], "broken")], room)
        assert [one.setup.name for one in fleets] == ["one", "two"]
        assert (scaling.fleets, room.hearers) == (known, hearers)


async def test_only_what_was_run_has_its_machines_removed() -> None:
    """An environment made for a configuration that was refused has no say about the machines of its name."""
    async with asyncio.TaskGroup() as tasks:
        scaling = Scaling(_starter(tasks))
        run, made = _Fleet("run"), _Fleet("made")
        scaling.follow([_environment(run)])
        for one in (run, made):
            scaling.leave(_environment(one))
        assert (run.is_discarded, made.is_discarded) == (True, False)
        scaling.follow([])


async def test_who_answers_in_place_of_a_cell_does_not_make_it_a_plain_server() -> None:
    server = _Server(502, 403, 200, is_cell=True)
    demand = CellDemand(cast("RunnerClient", server))
    for status in (502, 403):
        with pytest.raises(TemporaryError, match=f"with {status}: go away"):
            await demand.ask({})
    await demand.ask({})
    assert (server.asked, server.is_remuda.is_set()) == (3, True)


async def test_a_plain_server_is_asked_once_who_it_is() -> None:
    server = _Server(200, is_cell=False)
    demand = CellDemand(cast("RunnerClient", server))
    assert [(await demand.ask({})).keys for _ in range(2)] == [(), ()]
    assert server.asked == 1
