"""Runs the scalers of autoscaled environments, which create and remove machines, and tells them the demand for machines
(reported by a Remuda cell, not by a plain GitLab) and the taken job slots."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.cell_demand import CellDemand
from remuda.manager.environments.port import Environment
from remuda.manager.environments.scaled import Scaled
from remuda.manager.jobs.runners import ServedRunner
from remuda.manager.polling.room import Room


class Scaling:
    """Runs the scalers of all autoscaled environments. `start` runs a function as a supervised task with a name."""

    def __init__(self, start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]) -> None:
        self._start = start
        self._running: dict[int, tuple[Scaled, asyncio.Task[None]]] = {}
        self._demands: dict[int, tuple[Scaled, CellDemand]] = {}
        self._discarded: list[Scaled] = []
        self._is_draining = False
        self.fleets: list[tuple[RunnerConfig, Scaled]] = []
        """The configured runners with autoscaled environments, and these environments."""

    @property
    def ending(self) -> list[Scaled]:
        """Environments of removed runners: they wait for their last jobs, or remove their machines."""
        configured = {id(scaled) for _, scaled in self.fleets}
        scalers = {
            id(scaled): scaled for scaled in (*(running for running, _ in self._running.values()), *self._discarded)
        }
        return [scaled for key, scaled in scalers.items() if key not in configured and not scaled.is_closed]

    @property
    def all(self) -> list[Scaled]:
        """The autoscaled environments of configured runners, even before their scaler runs, and those in `ending`."""
        return [*(scaled for _, scaled in self.fleets), *self.ending]

    @property
    def owners(self) -> set[str]:
        """The tags with which the environments in `all` mark their machines at the provider."""
        return {scaled.setup.owner for scaled in self.all}

    def follow(self, environments: Iterable[Environment]) -> None:
        """Start the scalers of these environments unless they run, and stop all other scalers. Called every second."""
        if any(scaled.is_closed for scaled in self._discarded):
            self._discarded = [scaled for scaled in self._discarded if not scaled.is_closed]
            # Machines of a closed environment count against the provider's quota until the other scalers look again.
            for _, other in self.fleets:
                other.refresh()
        scalers = {id(environment): environment for environment in environments if isinstance(environment, Scaled)}
        for key in self._running.keys() - scalers.keys():
            self._running.pop(key)[1].cancel()
            self._demands.pop(key, None)
        for key in scalers.keys() - self._running.keys():
            scaled = scalers[key]
            self._running[key] = scaled, self._start(f"scaler of {scaled.setup.name}", scaled.run)

    def serve(self, runners: Iterable[ServedRunner], room: Room) -> None:
        """Apply the configuration of these runners to their scalers, and connect these to the demand (of servers) and
        the taken slots (`room`). Raises ConfigError, before any change, if a configuration cannot be used."""
        scaled = [(runner, runner.environment) for runner in runners if isinstance(runner.environment, Scaled)]
        setups = [environment.setup_for(runner.config) for runner, environment in scaled]
        for (runner, environment), setup in zip(scaled, setups, strict=True):
            environment.change(runner.config, setup)
            former = self._demands.get(id(environment))
            if former is None or former[1].client is not runner.client:
                environment.demand = CellDemand(runner.client)
                self._demands[id(environment)] = environment, environment.demand
        room.observers = {runner.config.short_token: environment.set_taken for runner, environment in scaled}
        self.fleets = [(runner.config, environment) for runner, environment in scaled]
        self._update_draining()

    def discard(self, environment: Environment) -> None:
        """Make the environment remove idle machines when it is closed; no effect if its scaler was not started."""
        if id(environment) in self._running and isinstance(environment, Scaled):
            environment.discard()
            self._discarded.append(environment)

    def drain(self) -> None:
        """Tell all scalers that no more jobs are requested, so that they keep only machines that current jobs need."""
        self._is_draining = True
        self._update_draining()

    def _update_draining(self) -> None:
        for _, scaled in self.fleets:
            scaled.drain(is_draining=self._is_draining)
        for scaled in self.ending:
            scaled.drain(is_draining=True, is_ending=True)
