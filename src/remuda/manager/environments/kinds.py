"""Which environment a runner has: one dictionary of kinds, and one environment for all runners whose places are equal.

Decided here: the kind that an executor of gitlab-runner means, and when two runners share. An adapter is imported when
it is first needed: most managers use one kind, and some of them take long to import. One that is being closed keeps
its name until that is done, so that there never are two over the same machines. `supervision.py` is the caller.
"""

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
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ClosingError, ConfigError
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.telemetry.logs import logger

if TYPE_CHECKING:
    from remuda.fleeting.port import InstanceGroup
    from remuda.taskscaler.loop import ScalerMetrics

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


def _ssh(runner: RunnerConfig, _: Path, clock: Clock) -> Environment:
    from remuda.manager.environments.machines import ssh_environment

    return ssh_environment(runner, clock)


def _machines(runner: RunnerConfig, _: Path, clock: Clock) -> Environment:
    from remuda.manager.environments.machines import machines_environment

    return machines_environment(runner, clock)


def _plugin(runner: RunnerConfig, jobs: Path, clock: Clock) -> Environment:
    from remuda.manager.environments.plugin import PluginEnvironment

    return PluginEnvironment(runner, jobs, clock=clock)


KINDS: dict[str, Callable[[RunnerConfig, Path, Clock], Environment]] = {
    "ssh": _ssh,
    "machines": _machines,
    "plugin": _plugin,
}
"""Besides `local`."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What environments that make machines have to know besides."""

    folder: Path
    """For what is kept of machines: in the manager's data folder."""
    system_id: str = ""
    counts: "Callable[[Callable[[], RunnerConfig]], ScalerMetrics] | None" = None
    """Who counts, for a runner that it can ask for."""
    plugins: "Callable[[str], InstanceGroup] | None" = None
    """Makes the group of a plugin, in place of running its program."""


def kind_of(runner: RunnerConfig) -> str:
    """The kind of environment that a runner has."""
    kind = KIND_OF_EXECUTOR[runner.executor]
    return AUTOSCALED if kind == "machines" and not runner.remuda.machines else kind


def plugins_in(around: Around, clock: Clock) -> "Callable[[str], InstanceGroup]":
    """Who makes the groups of plugins."""

    def hosted(plugin: str) -> "InstanceGroup":
        from remuda.fleeting.host import HostedGroup

        return HostedGroup(plugin, clock=clock)

    return around.plugins or hosted


def _autoscaled(runner: RunnerConfig, clock: Clock, around: Around) -> Environment:
    from remuda.manager.environments.autoscaled import AutoscaledEnvironment
    from remuda.taskscaler.loop.state import StateError

    try:
        return AutoscaledEnvironment(
            runner,
            folder=around.folder,
            system_id=around.system_id,
            clock=clock,
            plugins=plugins_in(around, clock),
            counts=around.counts,
        )
    except (StateError, OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"runner {runner.name or runner.short_token}: what is kept of its machines in {around.folder} cannot be "
            f"used: {error}"
        ) from error


def make_environment(
    runner: RunnerConfig,
    jobs: Path,
    clock: Clock,
    around: Around,
    *,
    agent_idle_exit_seconds: float = IDLE_EXIT_SECONDS,
) -> Environment:
    """A runner's environment; `jobs` is the folder for whatever it keeps on this machine."""
    kind = kind_of(runner)
    if kind == AUTOSCALED:
        return _autoscaled(runner, clock, around)
    if kind != LOCAL:
        return KINDS[kind](runner, jobs, clock)
    from remuda.manager.environments.local import LocalEnvironment

    return LocalEnvironment(jobs, clock=clock, idle_exit_seconds=agent_idle_exit_seconds)


def fleet_identity(fleet: str) -> str:
    """The same for the machines of a runner, by the name of what is kept of them."""
    return f"{AUTOSCALED}-{fleet}"


def identity(runner: RunnerConfig) -> str:
    """Equal for runners that share an environment, in every process."""
    kind = kind_of(runner)
    where: tuple[Any, ...]
    match kind:
        case "autoscaled":
            from remuda.manager.scaling.setup import runner_key

            # Its machines are nobody else's, and stay when its token is renewed.
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
    """The environments in use."""

    def __init__(
        self,
        make: Callable[[RunnerConfig, Around], Environment],
        identify: Callable[[RunnerConfig], str],
        around: Around,
    ) -> None:
        self._around = around
        self._make = make
        self._identify = identify
        self._known: dict[str, Environment] = {}
        self._closing: set[str] = set()

    def __iter__(self) -> Iterator[Environment]:
        """Those that are there, without those that are being closed."""
        return iter(list(self._known.values()))

    def are_for(self, system_id: str, counts: "Callable[[Callable[[], RunnerConfig]], ScalerMetrics]") -> None:
        """Which manager has them, and who counts for it; said before the first is made."""
        self._around = msgspec.structs.replace(self._around, system_id=system_id, counts=counts)

    def check(self, runners: Iterable[RunnerConfig]) -> None:
        """ClosingError: one of these needs what is being closed."""
        for runner in runners:
            if self._identify(runner) in self._closing:
                raise ClosingError(
                    f"runner {runner.name or runner.short_token} was taken out a moment ago, and what it had is still "
                    "being closed or removed: it comes back as soon as that is done"
                )

    def of(self, runner: RunnerConfig) -> Environment:
        """The runner's own, or that of another one that has an equal place. ClosingError: see `check`."""
        self.check([runner])
        name = self._identify(runner)
        if name not in self._known:
            self._known[name] = self._make(runner, self._around)
        return self._known[name]

    @contextmanager
    def held(self, fleet: str) -> Iterator[None]:
        """Nobody gets an environment over the machines of that fleet meanwhile. ClosingError: that is so already."""
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
        leave: Callable[[Environment], None],
    ) -> None:
        """Let go of those that are none of these: `leave` is told of each now, `start` makes a task that closes it."""
        for name, environment in list(self._known.items()):
            if not any(environment is one for one in used):
                leave(environment)
                start(f"end of environment {name}", self._begin_closing(name))

    async def close(self) -> None:
        """Let go of all, one after the other."""
        for name in list(self._known):
            await self._begin_closing(name)()

    def _begin_closing(self, name: str) -> Callable[[], Awaitable[None]]:
        self._closing.add(name)
        return partial(self._close, name, self._known.pop(name))

    async def _close(self, name: str, environment: Environment) -> None:
        """Once, whatever comes of it: what failed half way can only be found again by the next process."""
        try:
            await environment.close()
        except Exception as error:  # noqa: BLE001 - it must not keep the others, nor its runner from coming back
            logger("manager").error("an environment was not closed in order", environment=name, exc_info=error)
        finally:
            self._closing.discard(name)
