"""Creates environments, the places where jobs run, and shares one among runners whose jobs run on the same machines.

The module of each kind of environment is imported when it is first needed, because some are slow to import. While an
environment is being closed, no new one for the same machines is created, so that never two use the same machines."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ClosingError, ConfigError
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.telemetry.logs import logger

if TYPE_CHECKING:
    from remuda.fleeting.port import InstanceGroup
    from remuda.taskscaler.fleet.setup import ScalerMetrics

LOCAL = "local"
AUTOSCALED = "autoscaled"
KIND_OF_EXECUTOR = {
    "shell": LOCAL,
    "docker": LOCAL,
    "custom": LOCAL,
    "ssh": "ssh",
    "instance": "machines",
    "docker-autoscaler": "machines",
    "docker+machine": "machines",
    "plugin": "plugin",
}


class EnvironmentContext(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that all autoscaled environments of a manager share."""

    folder: Path
    """For the states of fleets; in the manager's data folder."""
    system_id: str = ""
    counts: "Callable[[Callable[[], RunnerConfig]], ScalerMetrics] | None" = None
    """Creates the metrics of a scaler, from a function that returns its runner."""
    plugins: "Callable[[str], InstanceGroup] | None" = None
    """Creates the group of a plugin, instead of running its program."""


def kind_of(runner: RunnerConfig) -> str:
    kind = KIND_OF_EXECUTOR[runner.executor]
    return AUTOSCALED if kind == "machines" and not runner.remuda.machines else kind


def plugin_factory(context: EnvironmentContext, clock: Clock) -> "Callable[[str], InstanceGroup]":
    def host(plugin: str) -> "InstanceGroup":
        from remuda.fleeting.host import HostedGroup

        return HostedGroup(plugin, clock=clock)

    return context.plugins or host


def _make_autoscaled(runner: RunnerConfig, clock: Clock, context: EnvironmentContext) -> Environment:
    from remuda.manager.environments.autoscaled import AutoscaledEnvironment
    from remuda.taskscaler.loop.state import StateError

    try:
        return AutoscaledEnvironment(
            runner,
            folder=context.folder,
            system_id=context.system_id,
            clock=clock,
            plugins=plugin_factory(context, clock),
            counts=context.counts,
        )
    except (StateError, OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"runner {runner.name or runner.short_token}: the stored state of its machines in {context.folder} cannot "
            f"be used: {error}"
        ) from error


def make_environment(
    runner: RunnerConfig,
    jobs: Path,
    clock: Clock,
    context: EnvironmentContext,
    *,
    agent_idle_exit_seconds: float = IDLE_EXIT_SECONDS,
) -> Environment:
    """Create the environment for a runner's executor. `jobs` is the folder for working directories, caches and the
    local agent on this machine, which ends itself after `agent_idle_exit_seconds` without jobs."""
    match kind_of(runner):
        case "autoscaled":
            return _make_autoscaled(runner, clock, context)
        case "ssh":
            from remuda.manager.environments.machines import ssh_environment

            return ssh_environment(runner, clock)
        case "machines":
            from remuda.manager.environments.machines import machines_environment

            return machines_environment(runner, clock)
        case "plugin":
            from remuda.manager.environments.plugin import PluginEnvironment

            return PluginEnvironment(runner, jobs, clock=clock)
        case _:
            from remuda.manager.environments.local import LocalEnvironment

            return LocalEnvironment(jobs, clock=clock, idle_exit_seconds=agent_idle_exit_seconds)


def fleet_identity(fleet: str) -> str:
    return f"{AUTOSCALED}-{fleet}"


def identity(runner: RunnerConfig) -> str:
    """Return a lasting name for the machines of a runner; runners with the same name share one environment."""
    kind = kind_of(runner)
    where: tuple[Any, ...]
    match kind:
        case "autoscaled":
            from remuda.manager.config.fleet_setup import runner_key

            # Not shared, and the same after a token renewal.
            return fleet_identity(runner_key(runner))
        case "ssh":
            where = (runner.ssh,)
        case "machines":
            where = (runner.remuda.machines,)
        case "plugin":
            where = (runner.remuda.environment,)
        case _:
            return kind
    return f"{kind}-{hashlib.sha256(msgspec.json.encode(where, order='deterministic')).hexdigest()[:12]}"


class Environments:
    """The environments of a manager, by the name from `identity`. Creates each on first use, and closes unused ones."""

    def __init__(
        self,
        make: Callable[[RunnerConfig, EnvironmentContext], Environment],
        identify: Callable[[RunnerConfig], str],
        context: EnvironmentContext,
    ) -> None:
        self._context = context
        self._make = make
        self._identify = identify
        self._known: dict[str, Environment] = {}
        self._closing: set[str] = set()

    def __iter__(self) -> Iterator[Environment]:
        """Iterate over all environments except those being closed."""
        return iter(list(self._known.values()))

    def set_manager(self, system_id: str, counts: "Callable[[Callable[[], RunnerConfig]], ScalerMetrics]") -> None:
        """Set the manager's id and the creator of scaler metrics, before the first environment is created."""
        self._context = msgspec.structs.replace(self._context, system_id=system_id, counts=counts)

    def check(self, runners: Iterable[RunnerConfig]) -> None:
        """Raise ClosingError if a runner needs an environment that is still being closed; callers try again later."""
        for runner in runners:
            if self._identify(runner) in self._closing:
                raise ClosingError(
                    f"runner {runner.name or runner.short_token} was removed from the configuration a moment ago, and "
                    "its environment is still being closed: it is used again as soon as that is done"
                )

    def of(self, runner: RunnerConfig) -> Environment:
        """Return or create a runner's environment. Raises ClosingError while one for its machines is being closed."""
        self.check([runner])
        name = self._identify(runner)
        if name not in self._known:
            self._known[name] = self._make(runner, self._context)
        return self._known[name]

    @contextmanager
    def block(self, fleet: str) -> Iterator[None]:
        """Within the `with` block no environment is created for the fleet (the machines created for one runner, by
        name). Raises ClosingError if the fleet is already blocked or its environment is being closed."""
        name = fleet_identity(fleet)
        if name in self._closing:
            raise ClosingError(f"machines of {fleet} are being removed; try again when that is done")
        self._closing.add(name)
        try:
            yield
        finally:
            self._closing.discard(name)

    def end_unused(
        self,
        used: Collection[Environment],
        start: Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]],
        discard: Callable[[Environment], None],
    ) -> None:
        """Call `discard` with each environment not in `used`, and close it in a task that `start` creates."""
        for name, environment in list(self._known.items()):
            if not any(environment is other for other in used):
                discard(environment)
                start(f"end of environment {name}", self._begin_closing(name))

    async def close(self) -> None:
        for name in list(self._known):
            await self._begin_closing(name)()

    def _begin_closing(self, name: str) -> Callable[[], Awaitable[None]]:
        self._closing.add(name)
        return partial(self._close, name, self._known.pop(name))

    async def _close(self, name: str, environment: Environment) -> None:
        """Close an environment. An error is logged and not retried: the next process finds the agents and machines that
        still exist."""
        try:
            await environment.close()
        except Exception as error:  # noqa: BLE001 - the others must be closed, too
            logger("manager").error(
                "cannot close an environment; its agents or machines may run until the next start of the manager",
                environment=name,
                exc_info=error,
            )
        finally:
            self._closing.discard(name)
