"""Which environment a runner has: one dictionary of kinds, and one environment for all runners whose places are equal.

Decided here: the kind that an executor of gitlab-runner means, and when two runners share. An adapter is imported when
it is first needed: most managers use one kind, and some of them take long to import. `supervision.py` is the caller.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from remuda.lib.clock import Clock
from remuda.manager.config import RunnerConfig
from remuda.manager.ports import Environment

LOCAL = "local"
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
    from remuda.manager.adapters.machines import ssh_environment

    return ssh_environment(runner, clock)


def _machines(runner: RunnerConfig, _: Path, clock: Clock) -> Environment:
    from remuda.manager.adapters.machines import machines_environment

    return machines_environment(runner, clock)


def _plugin(runner: RunnerConfig, jobs: Path, clock: Clock) -> Environment:
    from remuda.manager.adapters.plugin import PluginEnvironment

    return PluginEnvironment(runner, jobs, clock=clock)


KINDS: dict[str, Callable[[RunnerConfig, Path, Clock], Environment]] = {
    "ssh": _ssh,
    "machines": _machines,
    "plugin": _plugin,
}
"""Besides `local`."""


def make_environment(
    runner: RunnerConfig, jobs: Path, clock: Clock, *, agent_idle_exit_seconds: float = 300.0
) -> Environment:
    """A runner's environment; `jobs` is the folder for whatever it keeps on this machine."""
    kind = KIND_OF_EXECUTOR[runner.executor]
    if kind != LOCAL:
        return KINDS[kind](runner, jobs, clock)
    from remuda.manager.adapters.local import LocalEnvironment

    return LocalEnvironment(jobs, clock=clock, idle_exit_seconds=agent_idle_exit_seconds)


def identity(runner: RunnerConfig) -> str:
    """Equal for runners that share an environment, in every process."""
    kind = KIND_OF_EXECUTOR[runner.executor]
    where: tuple[Any, ...]
    match kind:
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

    def __init__(self, make: Callable[[RunnerConfig], Environment], identify: Callable[[RunnerConfig], str]) -> None:
        self._make = make
        self._identify = identify
        self._known: dict[str, Environment] = {}

    def __iter__(self) -> Iterator[Environment]:
        return iter(list(self._known.values()))

    def of(self, runner: RunnerConfig) -> Environment:
        """The runner's own, or that of another one that has an equal place."""
        name = self._identify(runner)
        if name not in self._known:
            self._known[name] = self._make(runner)
        return self._known[name]

    async def close_unused(self, used: Collection[Environment]) -> None:
        """Let go of those that are none of these."""
        for name, environment in list(self._known.items()):
            if not any(environment is one for one in used):
                del self._known[name]
                await environment.close()
