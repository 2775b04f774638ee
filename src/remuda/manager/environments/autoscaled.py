"""The autoscaled environment: a scaler creates and removes machines, and assigns them to jobs.

Each machine (instance) has one or more slots, and a job uses one. If an instance disappears, its jobs fail at once; if
no machine can be created for a job, the job fails with the scaler's explanation."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import ConnectInfo, InstanceGroup
from remuda.lib.clock import Clock
from remuda.manager.config.fleet_setup import autoscaler_of, fleet_setup, plugins_of
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.cell_demand import CellDemand
from remuda.manager.environments.fleet_record import remove_record, write_record
from remuda.manager.environments.instances import Instances
from remuda.manager.environments.port import UNKNOWN_BYTES, Hook, JobPlace, PreparedPlace, Usage
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import SshError
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.taskscaler.fleet.setup import (
    AcquireTimeoutError,
    FleetSetup,
    GoneError,
    NoMetrics,
    ScalerHost,
    ScalerMetrics,
)
from remuda.taskscaler.fleet.status import GroupStatus, ScalerStatus
from remuda.taskscaler.loop.provider_scaler import ProvidedScaler
from remuda.taskscaler.loop.scaler import Scaler
from remuda.taskscaler.loop.sweep import SweepResult, sweep
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient

FIRST_LOOK_SECONDS = 60.0
"""How long the search for jobs of an earlier process waits for groups to list their instances."""
RECOVER_SECONDS = 30.0
"""Timeout of that search on one instance."""
LOOK_SECONDS = 0.2


class AutoscaledEnvironment:
    """Runs the jobs of one runner on instances (machines that a scaler creates) of one or more instance groups."""

    def __init__(
        self,
        runner: RunnerConfig,
        *,
        folder: Path,
        system_id: str,
        clock: Clock,
        plugins: Callable[[str], InstanceGroup],
        counts: Callable[[Callable[[], RunnerConfig]], ScalerMetrics] | None = None,
        base: str = "",
    ) -> None:
        """`folder` has state files of the runner's machines. `plugins` creates the client of an instance group,
        `counts` the scaler's metrics; `base` replaces the folder for jobs on machines. Raises ConfigError if a key file
        cannot be read, StateError, OSError or sqlite3.Error if the state files cannot be used."""
        self._runner = runner
        self._folder = folder
        self._system_id = system_id
        self._clock = clock
        self._setup = fleet_setup(runner, system_id=system_id)
        if not runner.remuda.plugin_scales:
            write_record(folder, runner, self._setup)
        self._instances = Instances(runner, self._setup, folder, clock=clock, ask=self._connect_info, base=base)
        self._plugins = {name: plugins(plugin) for name, plugin in plugins_of(runner).items()}
        self._held: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._lost: dict[str, str] = {}
        """Instances that are gone, with the cause; while they have jobs."""
        self._taken = 0
        self._running: asyncio.Task[None] | None = None
        self._is_discarded = self.is_closed = False
        self._log = logger("manager").bind(runner=runner.short_token)
        self.demand: CellDemand | None = None
        """The server's demand; None: only jobs that wait here count."""
        metrics = self._metrics = NoMetrics() if counts is None else counts(lambda: self._runner)
        host = ScalerHost(machines=self._instances, fetch_demand=self._ask_demand, on_lost=self._note_lost)
        self._scaler: Scaler | ProvidedScaler
        if runner.remuda.plugin_scales:
            self._scaler = ProvidedScaler(
                self._setup,
                next(iter(self._plugins.values())),
                host=host,
                clock=clock,
                metrics=metrics,
            )
        else:
            self._scaler = Scaler(
                self._setup,
                self._plugins,
                host=host,
                folder=folder,
                clock=clock,
                metrics=metrics,
            )

    # For `manager.scaling`.

    @property
    def runner(self) -> RunnerConfig:
        return self._runner

    @property
    def setup(self) -> FleetSetup:
        return self._setup

    async def run(self) -> None:
        self._running = asyncio.current_task()
        await self._scaler.run()

    def setup_for(self, runner: RunnerConfig) -> FleetSetup:
        """Return the scaler's groups, limits and rules. Raises ConfigError if a key file cannot be read."""
        return self._setup if runner == self._runner else fleet_setup(runner, system_id=self._system_id)

    def change(self, runner: RunnerConfig, setup: FleetSetup) -> None:
        """Apply a new configuration of the runner; `setup` comes from `setup_for`. If a plugin changed, nothing is
        applied, and a warning is logged that the manager must be restarted."""
        if runner == self._runner:
            return
        if plugins_of(runner) != plugins_of(self._runner):
            self._log.warning("runner has another plugin now; its new settings apply after a restart of the manager")
            return
        self._runner, self._setup = runner, setup
        self._instances.change(runner, setup)
        self._scaler.change(setup)

    def set_taken(self, slots: int) -> None:
        """Set how many job slots are taken by jobs and by open requests for jobs, which may need machines."""
        self._taken = slots
        self._update_open_requests()

    def end_recovery(self) -> None:
        """Let the scaler free places of jobs that were not found: the search for jobs of earlier processes is over."""
        self._scaler.end_recovery()

    def discard(self) -> None:
        """Make `close` remove the machines without a job, because the runner is no longer configured."""
        self._is_discarded = True
        reason = "their runner is not configured any more"
        self._setup = msgspec.structs.replace(self._setup, delete_on_shutdown=True, delete_because=reason)
        self._scaler.change(self._setup)

    def drain(self, *, is_draining: bool, is_ending: bool = False) -> None:
        """Tell the scaler whether no more jobs are requested now (`is_draining`), or never again (`is_ending`)."""
        self._scaler.drain(is_draining=is_draining, is_ending=is_ending)

    def refresh(self) -> None:
        """Make the scaler list the instances at the provider soon, because quota or instances may have changed."""
        self._scaler.look()

    def status(self) -> ScalerStatus:
        return self._scaler.status()

    async def sweep(self, owners: Callable[[], Collection[str]], *, remove: bool) -> SweepResult:
        """Find orphaned instances at the provider, and with `remove` remove them: those of this manager whose owner tag
        is not in `owners`, and those of this runner that neither the plugin's list nor the stored state has."""
        starting = {group.name: _start_progress(group) for group in self.status().groups if not group.plugin}
        swept = await sweep(
            self._setup,
            self._plugins,
            owners,
            folder=self._folder,
            clock=self._clock,
            remove=remove,
            not_begun=starting,
        )
        self._metrics.set_orphans(len({orphan.instance for orphan in swept.found} - set(swept.removed)))
        return swept

    # The port.

    def capacity(self) -> int | None:
        return self._scaler.capacity()

    async def acquire(self, place: JobPlace) -> str:
        if place.key in self._held:
            return self._held[place.key]
        self._waiting.add(place.key)
        try:
            self._update_open_requests()
            key = self.demand.deduct_job() if self.demand is not None else ""
            began = self._clock.monotonic()
            slot = await self._scaler.acquire(place.key, key=key, caches=(place.project,))
            self._metrics.observe("slot_wait", self._clock.monotonic() - began)
        except AcquireTimeoutError as error:
            self._scaler.release(place.key, is_used=False)
            raise EnvironmentLostError(f"there is no machine for it: {error}") from error
        except BaseException:
            self._scaler.release(place.key, is_used=False)
            raise
        finally:
            self._waiting.discard(place.key)
        self._held[place.key] = slot.instance
        # A lost instance of the same name was replaced.
        self._lost.pop(slot.instance, None)
        self._update_open_requests()
        return slot.instance

    def adopt(self, place: JobPlace, machine: str) -> None:
        self._held[place.key] = machine
        if not self._scaler.adopt(place.key, machine):
            self._lost[machine] = f"no group has the instance {machine} any more"
        self._update_open_requests()

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        with self._errors(machine):
            prepared = await (await self._machine(machine)).prepare(place)
        return msgspec.structs.replace(
            prepared, notes=self._address_lines(machine), slot=self._scaler.slot_number(place.key)
        )

    async def run_hook(self, hook: Hook, place: JobPlace, machine: str) -> str:
        with self._errors(machine):
            return await (await self._machine(machine)).run_hook(hook, place)

    async def connect(self, machine: str) -> AgentClient:
        with self._errors(machine):
            client = await (await self._machine(machine)).connect()
        self._scaler.report(machine, is_well=True)
        return client

    async def recover(self) -> Sequence[str]:
        """Return the instances that may have jobs of an earlier process: they have jobs, or do not answer."""
        with_jobs: list[str] = []

        async def look(name: str) -> None:
            try:
                async with asyncio.timeout(RECOVER_SECONDS):
                    has_jobs = await (await self._machine(name)).has_jobs()
            except (SshError, TemporaryError, TimeoutError):
                has_jobs = True
            except (PermanentError, EnvironmentLostError):
                has_jobs = False
            if has_jobs:
                with_jobs.append(name)

        names = await self._list_instances()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(look(name), name=f"look for jobs on {name}")
        return sorted(with_jobs)

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """Return the free disk of the machine that has most; the health check replaces machines with a full disk."""
        free = self._instances.disk_free_bytes
        return Usage(disk_free_bytes=UNKNOWN_BYTES if free is None else free)

    async def clean_up(self, place: JobPlace, machine: str) -> None:
        try:
            if machine not in self._lost:
                with self._errors(machine):
                    await (await self._machine(machine)).remove(place)
        finally:
            self._held.pop(place.key, None)
            self._scaler.release(place.key, warmed=(place.project,))
            if machine not in self._held.values():
                self._lost.pop(machine, None)
            self._update_open_requests()

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
            self._running = None
        try:
            await self._scaler.close()
            if self._is_discarded:
                await asyncio.to_thread(remove_record, self._folder, self._setup.name)
        finally:
            self.is_closed = True
            self._metrics.clear()
            await self._instances.close()

    async def _list_instances(self) -> list[str]:
        """Return the running instances, after at most FIRST_LOOK_SECONDS of waiting until all groups listed theirs."""
        until = self._clock.monotonic() + FIRST_LOOK_SECONDS
        while True:
            status = self._scaler.status()
            if all(group.updated_at for group in status.groups) or self._clock.monotonic() >= until:
                return [instance.name for instance in status.instances if instance.provider_state in ("running", "")]
            await self._clock.sleep(LOOK_SECONDS)

    async def _connect_info(self, instance: str) -> ConnectInfo:
        return await self._scaler.connect_info(instance)

    async def _machine(self, name: str) -> RemoteMachine:
        if name in self._lost:
            raise EnvironmentLostError(self._lost[name])
        return await self._instances.connect(name)

    @contextmanager
    def _errors(self, machine: str) -> Iterator[None]:
        try:
            yield
        except GoneError as error:
            # If it is not in `_lost`, no job has a slot on it: the job is over, and only its clean-up is left.
            raise EnvironmentLostError(self._lost.get(machine, str(error))) from error
        except (SshError, TemporaryError, PermanentError) as error:
            if machine in self._lost:
                raise EnvironmentLostError(self._lost[machine]) from error
            # An error of the plugin says nothing about the machine's health.
            if isinstance(error, SshError):
                self._scaler.report(machine, is_well=False)
            raise EnvironmentTemporaryError(str(error)) from error

    def _note_lost(self, instance: str, holders: Sequence[str], why: str) -> None:
        """Record that an instance disappeared, so that its jobs (`holders`) fail at once and not after a timeout."""
        about = {"machine": instance, "jobs": len(holders)} | ({"cause": why} if why else {})
        self._log.error("instance disappeared from its group; its jobs fail", **about)
        if holders or instance in self._held.values():
            text = f"the instance {instance} disappeared from its group, and this manager did not remove it"
            self._lost[instance] = f"{text}: {why}" if why else text
        self._instances.cut(instance)

    def _address_lines(self, machine: str) -> tuple[str, ...]:
        """Return lines with the machine's addresses for the job's log: the internal one if `log_internal_ip` is set,
        the external one if `log_external_ip` is set."""
        scaling, info = autoscaler_of(self._runner), self._instances.info(machine)
        if info is None:
            return ()
        addresses = [("internal", info.internal_addr)] if scaling.log_internal_ip else []
        addresses += [("external", info.external_addr)] if scaling.log_external_ip else []
        return tuple(f"Machine {machine} has the {kind} address {address}" for kind, address in addresses if address)

    def _update_open_requests(self) -> None:
        self._scaler.set_open_requests(max(self._taken - len(self._held) - len(self._waiting), 0))

    async def _ask_demand(self, waiting: Mapping[str, int]) -> Demand:
        if self.demand is not None:
            return await self.demand.ask(waiting)
        return Demand(keys=tuple(KeyDemand(key=key, waiting=jobs) for key, jobs in sorted(waiting.items()) if jobs))


def _start_progress(group: GroupStatus) -> str:
    """Return a text about the start of a group's plugin, for messages: still starting, failed, or not begun."""
    if group.starting_seconds is not None:
        before = f"; the last start failed: {group.error}" if group.error else ""
        return f"its plugin is starting, {group.starting_seconds:.0f} s so far{before}"
    return f"its plugin cannot be started: {group.error}" if group.error else "its plugin has not been started yet"
