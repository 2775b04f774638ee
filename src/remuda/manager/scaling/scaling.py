"""Environments whose machines come and go, as the supervisor sees them: run, told of demand, shown, swept.

Decided here: which server is asked for its demand (only a Remuda cell has any to tell). What is done with it is decided
in `remuda.taskscaler`. `supervision.py` is the caller.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import quote

import msgspec

from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import Environment
from remuda.manager.polling.room import Room
from remuda.wire import demand as wire
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import RunnerApiTemporaryError

if TYPE_CHECKING:
    from remuda.manager.process.runners import ServedRunner
    from remuda.taskscaler.core.values import Demand
    from remuda.taskscaler.loop import FleetSetup, ScalerStatus
    from remuda.taskscaler.loop.sweep import SweepResult

DEMAND_PATH = "/api/remuda/v1/demand"
BAD_TOKEN = "the runner's token is not valid there (any more); create a runner there, and use its token"


@runtime_checkable
class Scaled(Protocol):
    """What such an environment has besides."""

    demand: "CellDemand | None"

    @property
    def runner(self) -> RunnerConfig: ...

    @property
    def setup(self) -> "FleetSetup": ...

    @property
    def is_closed(self) -> bool: ...

    async def run(self) -> None: ...

    def setup_for(self, runner: RunnerConfig) -> "FleetSetup": ...

    def change(self, runner: RunnerConfig, setup: "FleetSetup") -> None: ...

    def hear(self, taken: int) -> None: ...

    def end_recovery(self) -> None: ...

    def discard(self) -> None: ...

    def drain(self, *, is_draining: bool, is_ending: bool = False) -> None: ...

    def look(self) -> None: ...

    def status(self) -> "ScalerStatus": ...

    async def sweep(self, owners: Callable[[], Collection[str]], *, remove: bool) -> "SweepResult": ...


class Scaling:
    """Runs the scalers of all environments that have one. `start` makes a supervised task."""

    def __init__(self, start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]) -> None:
        self._start = start
        self._begun: dict[int, tuple[Scaled, asyncio.Task[None]]] = {}
        self._tellers: dict[int, tuple[Scaled, CellDemand]] = {}
        self._left: list[Scaled] = []
        self._is_draining = False
        self.fleets: list[tuple[RunnerConfig, Scaled]] = []
        """The runners for whom machines are created, and who does it."""

    @property
    def ending(self) -> list[Scaled]:
        """Those of runners that are not configured any more: they wait for the last jobs, or their machines go."""
        served = {id(one) for _, one in self.fleets}
        there = {id(one): one for one in (*(one for one, _ in self._begun.values()), *self._left)}
        return [one for key, one in there.items() if key not in served and not one.is_closed]

    @property
    def all(self) -> list[Scaled]:
        """Whoever looks after machines here; one that is configured counts before it has begun."""
        return [*(one for _, one in self.fleets), *self.ending]

    @property
    def owners(self) -> set[str]:
        """By whose tags machines are known here."""
        return {one.setup.owner for one in self.all}

    def follow(self, environments: Iterable[Environment]) -> None:
        """These are there now: run those that are new. Called now and then."""
        if any(one.is_closed for one in self._left):
            self._left = [one for one in self._left if not one.is_closed]
            # Its machines took up room for others of the same provider, until those see that they are gone.
            for _, other in self.fleets:
                other.look()
        there = {id(one): one for one in environments if isinstance(one, Scaled)}
        for gone in self._begun.keys() - there.keys():
            self._begun.pop(gone)[1].cancel()
            self._tellers.pop(gone, None)
        for key in there.keys() - self._begun.keys():
            self._begun[key] = there[key], self._start(f"scaler of {there[key].setup.name}", there[key].run)

    def serve(self, runners: "Iterable[ServedRunner]", room: Room) -> None:
        """These are configured now: their environments hear of demand, and of what is taken of the room.

        ConfigError: one of them cannot be as it is configured, and all are as they were.
        """
        scaled = [(one, one.environment) for one in runners if isinstance(one.environment, Scaled)]
        setups = [environment.setup_for(one.config) for one, environment in scaled]
        for (one, environment), setup in zip(scaled, setups, strict=True):
            environment.change(one.config, setup)
            known = self._tellers.get(id(environment))
            if known is None or known[1].client is not one.client:
                environment.demand = CellDemand(one.client)
                self._tellers[id(environment)] = environment, environment.demand
        room.hearers = {one.config.short_token: environment.hear for one, environment in scaled}
        self.fleets = [(one.config, environment) for one, environment in scaled]
        self._tell()

    def leave(self, environment: Environment) -> None:
        """Its runner is not configured any more: its machines go. One that was never run has none of this process."""
        if id(environment) in self._begun and isinstance(environment, Scaled):
            environment.discard()
            self._left.append(environment)

    def drain(self) -> None:
        """No more jobs are asked for, so machines are only wanted for those that are here."""
        self._is_draining = True
        self._tell()

    def _tell(self) -> None:
        for _, one in self.fleets:
            one.drain(is_draining=self._is_draining)
        for one in self.ending:
            one.drain(is_draining=True, is_ending=True)


def all_found(environments: Iterable[Environment]) -> None:
    """Jobs of earlier processes are known, as far as they ever will be."""
    for one in environments:
        if isinstance(one, Scaled):
            one.end_recovery()


class CellDemand:
    """What a cell has for this manager; a plain GitLab tells nothing."""

    def __init__(self, client: RunnerClient) -> None:
        self.client = client
        self._left: Counter[str] = Counter()
        self._is_known = False
        """Whether the server has said what it is: no job may be asked for before there is a machine for it."""

    async def ask(self, waiting: Mapping[str, int]) -> "Demand":
        """What jobs ask for. TemporaryError: the cell does not say it now."""
        from remuda.fleeting.errors import TemporaryError
        from remuda.taskscaler.core.share import own_demand

        told = wire.Demand()
        own = self.client.system_id
        try:
            if not self._is_known and not self.client.is_remuda.is_set():
                answer = await self.client.verify()
                # One who answers in place of the server does not know what it is.
                if answer.status != 200:
                    raise TemporaryError(
                        f"the server answered the question whether it knows the runner with {answer.status}"
                        + (f": {answer.message}" if answer.message else "")
                    )
            self._is_known = True
            if self.client.is_remuda.is_set():
                reply = await self.client.own("GET", f"{DEMAND_PATH}?system_id={quote(own)}", endpoint="demand")
                if reply.status != 200:
                    why = f": {BAD_TOKEN}" if reply.status in (401, 403) else ""
                    raise TemporaryError(f"the cell answered the question for its demand with {reply.status}{why}")
                told = msgspec.json.decode(reply.body, type=wire.Demand)
        except (RunnerApiTemporaryError, msgspec.MsgspecError) as error:
            raise TemporaryError(f"the server does not tell its demand: {error}") from error
        ids = {share.runner_id for key in told.keys for share in key.shares if share.system_id == own}
        found = own_demand(told, runner_id=min(ids, default=0), system_id=own, waiting=waiting)
        self._left = Counter({one.key: one.ready for one in found.keys})
        return found

    def accepted(self) -> str:
        """A job came; the key of demand that it is taken off. All machines are alike, so any one with jobs is right."""
        for key, ready in self._left.most_common(1):
            if ready > 0:
                self._left[key] -= 1
                return key
        return ""
