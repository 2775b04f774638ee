"""The manager as a process: its data folder, its configuration and what becomes of it, and how it stops.

Stop: at once; running jobs stay with their agents and in the journal, and the next start goes on with them. Drain: no
new jobs, wait for the running ones up to the drain time, then stop. A configuration file that changes is read again
within seconds, or when somebody asks for it; one that cannot be used leaves everything as it is. What runs meanwhile is
in `supervision.py`.
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
from remuda.lib.waiting import happens_by
from remuda.manager.config.load import LOG_LEVELS, ManagerConfig, load
from remuda.manager.core.limits import Limits
from remuda.manager.environments.kinds import Around, Environments, identity, make_environment, plugins_in
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ClosingError, ConfigError
from remuda.manager.metrics.metrics import serve_metrics
from remuda.manager.process.data_folder import DataFolder, jobs_folder
from remuda.manager.process.status import ConfigStatus, status_of
from remuda.manager.process.supervision import Manager, Part
from remuda.steps.pack.program import IDLE_EXIT_SECONDS
from remuda.telemetry import logs
from remuda.wire.runner_server import new_session

if TYPE_CHECKING:
    from remuda.fleeting.port import InstanceGroup
    from remuda.manager.process.control import Control
    from remuda.manager.registration.token_rotation import Rotation
    from remuda.manager.scaling.orphaned_machines import LeftMachines

RELOAD_SECONDS = 2.0
"""How often is looked whether the configuration file is another one."""
GATHERING_SECONDS = 0.2
"""Nobody sees that log and results come so much later, and a job that is over by then costs half the calls."""


class ManagerService:
    """One manager over one data folder; `config` is the file or what was read from it."""

    def __init__(
        self,
        config: Path | ManagerConfig,
        data: Path,
        *,
        clock: Clock | None = None,
        environment: Environment | None = None,
        jobs: Path | None = None,
        agent_idle_exit_seconds: float = IDLE_EXIT_SECONDS,
        keep_alive_seconds: float = 30.0,
        agent_lost_seconds: float = Limits().agent,
        recovers: bool = True,
        keep_builds: bool = False,
        plugins: "Callable[[str], InstanceGroup] | None" = None,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        """A silent job learns of its cancellation with the answer to its next keep-alive.

        One whose agent could not be reached for `agent_lost_seconds` is given up.
        `environment` is that of all runners, in place of what the configuration says. `jobs` is the folder for what
        belongs to jobs on this machine: the agent's, working directories, caches; None: beside the data folder.
        Where both folders are one, nothing is left when it is lost, and `recovers` may be False. With `keep_builds`
        every job has a working directory of its own, and that of a failed one stays: see `kept`. `plugins` makes the
        instance group of a plugin, in place of running the plugin's program.
        """
        self._config = config
        self._limits = Limits(keep_alive=keep_alive_seconds, agent=agent_lost_seconds, gathering=GATHERING_SECONDS)
        self._data = data
        self._recovers = recovers
        self._keep_builds = keep_builds
        self._on_job_over = on_job_over
        self._clock = clock or SystemClock()
        self._log = logs.logger("manager")
        self._config_status = ConfigStatus()
        around = self._machines = Around(folder=data / "machines", plugins=plugins)
        if environment is not None:
            self._environments = Environments(lambda _runner, _around: environment, lambda _: "given", around)
        else:
            self._environments = Environments(
                lambda runner, around: make_environment(
                    runner,
                    jobs or jobs_folder(data),
                    self._clock,
                    around,
                    agent_idle_exit_seconds=agent_idle_exit_seconds,
                ),
                identity,
                around,
            )

    async def run(
        self,
        stop: asyncio.Event,
        *,
        drain: asyncio.Event | None = None,
        reload: asyncio.Event | None = None,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until told to stop or drained. ManagerError says why it cannot start, or not go on."""
        try:
            async with asyncio.timeout(None) as limit:
                await self._run(stop, drain or asyncio.Event(), reload or asyncio.Event(), ready, limit)
        except TimeoutError:
            if not limit.expired():
                raise
            self._log.error("stopping takes longer than shutdown_timeout; what is left is left to the next start")

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
                limits=self._limits,
                recovers=self._recovers,
                keeps_in=self._data if self._keep_builds else None,
                on_job_over=self._on_job_over,
            )
            if manager.exporter is not None:
                await stack.enter_async_context(manager.exporter)
            if config.listen_address:
                await stack.enter_async_context(serve_metrics(config.listen_address, manager.metrics))
            parts: list[Part] = []
            if isinstance(self._config, Path):
                watch = partial(self._watch_file, manager, self._config, reload)
                parts.append(("watch of the configuration", watch))
                parts.append(("renewal of tokens", self._rotation(manager, self._config, reload).run))
            if self._recovers:
                left = self._left(manager)
                parts.append(("look for machines that are left", left.tell))
                parts.append(("control socket", self._control(manager, drain, left).run))

            def stopping() -> None:
                limit.reschedule(asyncio.get_running_loop().time() + manager.config.shutdown_seconds)

            await manager.serve(stop, drain, ready, parts=parts, stopping=stopping)

    def _left(self, manager: Manager) -> "LeftMachines":
        from remuda.manager.scaling.orphaned_machines import (
            LeftMachines,  # not at the top: a manager inside a command has none
        )

        return LeftMachines(
            self._machines.folder,
            scaling=manager.scaling,
            plugins=plugins_in(self._machines, self._clock),
            hold=self._environments.held,
            clock=self._clock,
        )

    def _control(self, manager: Manager, drain: asyncio.Event, left: "LeftMachines") -> "Control":
        from remuda.manager.process.control import Control  # not at the top: a manager inside a command has none
        from remuda.manager.scaling.scale_commands import orders

        return Control(
            self._data,
            status=lambda: status_of(manager, self._config_status),
            drain=drain.set,
            clock=self._clock,
            others=orders(manager.scaling, left),
        )

    def _rotation(self, manager: Manager, file: Path, reload: asyncio.Event) -> "Rotation":
        from remuda.manager.registration.token_rotation import (
            Rotation,  # not at the top: a manager inside a command has no file
        )

        def saved(is_done: bool) -> None:
            manager.metrics.configuration_saved(is_done=is_done)
            if is_done:
                reload.set()

        return Rotation(file, self._clock, saved=saved)

    def _load(self) -> tuple[ManagerConfig, Path | None]:
        if isinstance(self._config, ManagerConfig):
            return self._config, None
        self._seen = _stamp(self._config)
        loaded = load(self._config)
        self._config_status = ConfigStatus(file=str(self._config.absolute()), loaded_at=rfc3339(self._clock.now()))
        for warning in loaded.warnings:
            self._log.warning(warning)
        return loaded.config, self._config.parent

    async def _watch_file(self, manager: Manager, file: Path, reload: asyncio.Event) -> None:
        """Read the file again when it is another one, or when asked to; a bad one is told of once."""
        while True:
            await happens_by(self._clock, reload, within_seconds=RELOAD_SECONDS, name="configuration")
            is_wanted = reload.is_set()
            reload.clear()
            now = await asyncio.to_thread(_stamp, file)
            if is_wanted or now != self._seen:
                self._seen = now
                self._reload(manager, file)

    def _reload(self, manager: Manager, file: Path) -> None:
        try:
            loaded = load(file, may_be_idle=True)
            found = manager.apply(loaded.config)
        except ClosingError as error:
            self._seen = None  # nothing is wrong with the file, so it is read again at the next look
            self._log.info("the new configuration has to wait", cause=str(error))
            self._config_status = replace(self._config_status, error=str(error))
            return
        except ConfigError as error:
            manager.metrics.configuration_failed()
            self._log.error("the new configuration cannot be used; the old one stays", cause=str(error))
            self._config_status = replace(self._config_status, error=str(error))
            return
        self._config_status = replace(
            self._config_status, loaded_at=rfc3339(self._clock.now()), error="", restart=found.restart
        )
        manager.metrics.configuration_loaded()
        for warning in loaded.warnings:
            self._log.warning(warning)
        logs.set_level(LOG_LEVELS[manager.config.log_level])
        self._log.info(
            "the configuration was read again",
            changed=list(found.at_once),
            added=[runner.name or runner.short_token for runner in found.added],
            removed=[runner.name or runner.short_token for runner in found.removed],
        )
        if not manager.config.runners:
            self._log.warning("there is no [[runners]] section any more; no jobs are asked for until there is one")
        if found.restart:
            self._log.warning("some of what changed in the configuration needs a restart", keys=list(found.restart))


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """Changes with every writing of the file; None: there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
