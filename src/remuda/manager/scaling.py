"""Environments whose machines come and go, as the supervisor sees them: run, told of demand, shown, swept.

Decided here: when a cell is asked for its demand (only a Remuda cell has any to tell), and how long what it said last
counts when it does not answer. What is done with it is decided in `remuda.taskscaler`. `supervision.py` is the caller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import quote

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config import RunnerConfig
from remuda.manager.ports import Environment
from remuda.manager.room import Room
from remuda.telemetry.logs import logger
from remuda.wire import demand as wire
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError

if TYPE_CHECKING:
    from remuda.fleeting.port import InstanceGroup
    from remuda.manager.runners import ServedRunner
    from remuda.taskscaler.loop import FleetSetup, ScalerStatus
    from remuda.taskscaler.values import Demand

DEMAND_PATH = "/api/remuda/v1/demand"
STALE_SECONDS = 60.0
"""So long what a cell said last counts while it does not answer."""


@runtime_checkable
class Scaled(Protocol):
    """What such an environment has besides."""

    demand: "Callable[[Mapping[str, int]], Awaitable[Demand]] | None"

    @property
    def setup(self) -> "FleetSetup": ...

    @property
    def plugins(self) -> "Mapping[str, InstanceGroup]": ...

    async def run(self) -> None: ...

    def change(self, runner: RunnerConfig) -> None: ...

    def hear(self, taken: int) -> None: ...

    def recovered(self) -> None: ...

    def discard(self) -> None: ...

    def status(self) -> "ScalerStatus": ...


class Scaling:
    """Runs the scalers of all environments that have one. `start` makes a supervised task."""

    def __init__(self, clock: Clock, start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]) -> None:
        self._clock = clock
        self._start = start
        self._begun: dict[int, tuple[Scaled, asyncio.Task[None]]] = {}
        self._tellers: dict[int, CellDemand] = {}
        self.fleets: list[tuple[RunnerConfig, Scaled]] = []
        """The runners for whom machines are created, and who does it."""

    def follow(self, environments: Iterable[Environment]) -> None:
        """These are there now: run those that are new."""
        there = {id(one): one for one in environments if isinstance(one, Scaled)}
        for gone in self._begun.keys() - there.keys():
            self._begun.pop(gone)[1].cancel()
            self._tellers.pop(gone, None)
        for key in there.keys() - self._begun.keys():
            self._begun[key] = there[key], self._start(f"scaler of {there[key].setup.name}", there[key].run)

    def serve(self, runners: "Iterable[ServedRunner]", room: Room) -> None:
        """These are configured now: their environments hear of demand, and of what is taken of the room."""
        hearers = {}
        fleets: list[tuple[RunnerConfig, Scaled]] = []
        for one in runners:
            if not isinstance(one.environment, Scaled):
                continue
            one.environment.change(one.config)
            hearers[one.config.short_token] = one.environment.hear
            fleets.append((one.config, one.environment))
            key = id(one.environment)
            if key not in self._tellers or self._tellers[key].client is not one.client:
                self._tellers[key] = CellDemand(one.client, self._clock)
                one.environment.demand = self._tellers[key].ask
        room.hearers, self.fleets = hearers, fleets


def all_found(environments: Iterable[Environment]) -> None:
    """Jobs of earlier processes are known, as far as they ever will be."""
    for one in environments:
        if isinstance(one, Scaled):
            one.recovered()


def discard(environment: Environment) -> None:
    """Its runner is not configured any more."""
    if isinstance(environment, Scaled):
        environment.discard()


class CellDemand:
    """What a cell has for this manager; with a plain GitLab, only what waits here."""

    def __init__(self, client: RunnerClient, clock: Clock) -> None:
        self.client = client
        self._clock = clock
        self._told: wire.Demand | None = None
        self._told_at = 0.0
        self._problem = ""
        self._log = logger("manager")

    async def ask(self, waiting: Mapping[str, int]) -> "Demand":
        """Never raises because of the server."""
        from remuda.taskscaler.share import own_demand

        if self.client.is_remuda.is_set():
            await self._look()
        told = self._told or wire.Demand()
        own = self.client.system_id
        ids = {share.runner_id for key in told.keys for share in key.shares if share.system_id == own}
        return own_demand(told, runner_id=min(ids, default=0), system_id=own, waiting=waiting)

    async def _look(self) -> None:
        path = f"{DEMAND_PATH}?system_id={quote(self.client.system_id)}"
        problem = ""
        try:
            reply = await self.client.own("GET", path, endpoint="demand")
            if reply.status == 200:
                self._told, self._told_at = msgspec.json.decode(reply.body, type=wire.Demand), self._clock.monotonic()
            else:
                problem = f"it answered with {reply.status}"
        except (RunnerApiTemporaryError, msgspec.MsgspecError) as error:
            problem = str(error)
        if problem and problem != self._problem:
            self._log.warning("the cell does not tell its demand; only jobs that wait here count", cause=problem)
        self._problem = problem
        if problem and self._clock.monotonic() - self._told_at > STALE_SECONDS:
            self._told = None
