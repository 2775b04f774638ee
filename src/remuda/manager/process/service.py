"""The manager as a process: opens its data folder, loads and reloads its configuration, stops or drains.

A stop does not wait for jobs and takes at most shutdown_timeout; running jobs continue at their agents, and the next
start resumes them. A drain requests no new jobs, waits for the running ones up to drain_timeout, then stops. A changed
configuration file is reloaded within seconds, or on request; if the new file is invalid, the old configuration stays.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from remuda.lib.clock import Clock, SystemClock, rfc3339
from remuda.lib.descriptors import raise_limit
from remuda.lib.waiting import wait_for_any_event
from remuda.manager.config.load import load
from remuda.manager.config.value_checks import LOG_LEVELS
from remuda.manager.config.values import ManagerConfig
from remuda.manager.environments.kinds import (
    EnvironmentContext,
    Environments,
    identity,
    make_environment,
    plugin_factory,
)
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ClosingError, ConfigError
from remuda.manager.metrics.metrics import serve_metrics
from remuda.manager.process.data_folder import DataFolder, jobs_folder
from remuda.manager.process.status import ConfigStatus, status_of
from remuda.manager.process.supervision import Manager, ManagerOptions, Part
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.telemetry import logs
from remuda.wire.runner_server import new_session

if TYPE_CHECKING:
    from remuda.fleeting.port import InstanceGroup
    from remuda.manager.process.control import Control
    from remuda.manager.registration.token_rotation import TokenRotation
    from remuda.manager.scaling.orphaned_machines import OrphanedMachines

RELOAD_SECONDS = 2.0
"""Interval of the checks whether the configuration file has changed."""


class ManagerService:
    """A manager process. `config` is a file, which is watched for changes, or a configuration that never changes."""

    def __init__(
        self,
        config: Path | ManagerConfig,
        data: Path,
        *,
        clock: Clock | None = None,
        environment: Environment | None = None,
        jobs: Path | None = None,
        agent_idle_exit_seconds: float = IDLE_EXIT_SECONDS,
        options: ManagerOptions | None = None,
        plugins: "Callable[[str], InstanceGroup] | None" = None,
    ) -> None:
        """`environment` replaces the configured environments. `jobs` is the folder for local agent, working directories
        and caches (None: beside `data`). `plugins` creates plugin clients by name (None: run the programs)."""
        self._config = config
        self._data = data
        self._options = options or ManagerOptions(finds_obstacles=isinstance(config, Path) and environment is None)
        self._clock = clock or SystemClock()
        self._log = logs.logger("manager")
        self._config_status = ConfigStatus()
        context = self._environment_context = EnvironmentContext(folder=data / "machines", plugins=plugins)
        if environment is not None:
            self._environments = Environments(lambda _runner, _context: environment, lambda _: "given", context)
        else:
            self._environments = Environments(
                lambda runner, context: make_environment(
                    runner,
                    jobs or jobs_folder(data),
                    self._clock,
                    context,
                    agent_idle_exit_seconds=agent_idle_exit_seconds,
                ),
                identity,
                context,
            )

    async def run(
        self,
        stop: asyncio.Event,
        *,
        drain: asyncio.Event | None = None,
        reload: asyncio.Event | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until `stop` is set, or `drain` is set and the jobs are over. `reload` lets it read the configuration
        again; `ready` is called after the start. Raises ManagerError if the manager cannot start or continue."""
        try:
            async with asyncio.timeout(None) as limit:
                await self._run(stop, drain or asyncio.Event(), reload or asyncio.Event(), ready, limit)
        except TimeoutError:
            if not limit.expired():
                raise
            self._log.error("shutdown_timeout exceeded; the manager stops without finishing its cleanup")

    async def _run(
        self,
        stop: asyncio.Event,
        drain: asyncio.Event,
        reload: asyncio.Event,
        ready: Callable[[], None],
        limit: asyncio.Timeout,
    ) -> None:
        config, beside = self._load()
        raise_limit()
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(DataFolder(self._data, beside_config=beside))
            session = await stack.enter_async_context(new_session())
            stack.push_async_callback(self._environments.close)
            manager = Manager(
                config,
                folder=folder,
                session=session,
                environments=self._environments,
                clock=self._clock,
                options=self._options,
            )
            if manager.exporter is not None:
                await stack.enter_async_context(manager.exporter)
            if config.listen_address:
                await stack.enter_async_context(serve_metrics(config.listen_address, manager.metrics))
            parts: list[Part] = []
            if isinstance(self._config, Path):
                watch = partial(self._watch_file, manager, self._config, reload)
                parts.append(("watch of the configuration", watch))
                parts.append(("renewal of tokens", self._make_rotation(manager, self._config, reload).run))
            if self._options.recovers:
                orphans = self._make_orphaned_machines(manager)
                parts.append(("search for orphaned machines", orphans.report))
                parts.append(("control socket", self._make_control(manager, drain, orphans).run))

            def limit_stopping() -> None:
                limit.reschedule(asyncio.get_running_loop().time() + manager.config.shutdown_seconds)

            await manager.serve(stop, drain, ready, parts=parts, on_stopping=limit_stopping)

    # The imports below are local because a manager inside a command needs none of them.

    def _make_orphaned_machines(self, manager: Manager) -> "OrphanedMachines":
        from remuda.manager.scaling.orphaned_machines import OrphanedMachines

        return OrphanedMachines(
            self._environment_context.folder,
            scaling=manager.scaling,
            plugins=plugin_factory(self._environment_context, self._clock),
            block=self._environments.block,
            clock=self._clock,
        )

    def _make_control(self, manager: Manager, drain: asyncio.Event, orphans: "OrphanedMachines") -> "Control":
        from remuda.manager.process.control import Control
        from remuda.manager.process.scale_commands import scale_commands

        return Control(
            self._data,
            status=lambda: status_of(manager, self._config_status),
            drain=drain.set,
            clock=self._clock,
            others=scale_commands(manager.scaling, orphans),
        )

    def _make_rotation(self, manager: Manager, file: Path, reload: asyncio.Event) -> "TokenRotation":
        from remuda.manager.registration.token_rotation import TokenRotation

        def on_save(is_done: bool) -> None:
            manager.metrics.configuration_saved(is_done=is_done)
            if is_done:
                reload.set()

        return TokenRotation(file, self._clock, on_save=on_save)

    def _load(self) -> tuple[ManagerConfig, Path | None]:
        if isinstance(self._config, ManagerConfig):
            return self._config, None
        self._seen = _stamp(self._config)
        loaded = load(self._config)
        self._config_status = ConfigStatus(file=str(self._config.absolute()), loaded_at=rfc3339(self._clock.now()))
        for warning in loaded.warnings:
            self._log.warning("problem in the configuration; using it nevertheless", warning=warning)
        return loaded.config, self._config.parent

    async def _watch_file(self, manager: Manager, file: Path, reload: asyncio.Event) -> None:
        while True:
            await wait_for_any_event(self._clock, reload, within_seconds=RELOAD_SECONDS, name="configuration")
            is_requested = reload.is_set()
            reload.clear()
            stamp = await asyncio.to_thread(_stamp, file)
            if is_requested or stamp != self._seen:
                self._seen = stamp
                self._reload(manager, file)

    def _reload(self, manager: Manager, file: Path) -> None:
        try:
            loaded = load(file, may_be_idle=True)
            changes = manager.apply(loaded.config)
        except ClosingError as error:
            self._seen = None  # the file is fine, so it is read again at the next check
            self._log.info(
                "configuration not applied yet: an environment of the old one is still being closed; trying again",
                cause=str(error),
            )
            self._config_status = replace(self._config_status, error=str(error))
            return
        except ConfigError as error:
            manager.metrics.configuration_failed()
            self._log.error("cannot use the new configuration; keeping the old one", cause=str(error))
            self._config_status = replace(self._config_status, error=str(error))
            return
        self._config_status = replace(
            self._config_status, loaded_at=rfc3339(self._clock.now()), error="", restart=changes.restart
        )
        manager.metrics.configuration_loaded()
        for warning in loaded.warnings:
            self._log.warning("problem in the configuration; using it nevertheless", warning=warning)
        logs.set_level(LOG_LEVELS[manager.config.log_level])
        self._log.info(
            "configuration reloaded",
            changed=list(changes.at_once),
            added=[runner.name or runner.short_token for runner in changes.added],
            removed=[runner.name or runner.short_token for runner in changes.removed],
        )
        if not manager.config.runners:
            self._log.warning("no [[runners]] section is left; not requesting jobs")
        if changes.restart:
            self._log.warning(
                "some configuration changes need a restart of the manager; the old values apply until then",
                keys=list(changes.restart),
            )


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Return modification time, size and inode of a file, which change when it is written; None if it is missing."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
