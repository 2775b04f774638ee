"""Environments whose machines come and go: the scaler has them created, and says which of them a job gets.

Decided here is only what becomes of the scaler's words for jobs: a slot is a machine for a job, an instance that is
gone ends its jobs at once with that cause, a wait that can come to nothing ends the job with the explanation. How many
machines there are is decided in `remuda.taskscaler`, what is done on a machine in `remote_machine`, how it is logged in
to in `instances`. `manager.scaling` runs the scaler, and tells who asks for jobs here and where demand is told.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import ConnectInfo, InstanceGroup
from remuda.lib.clock import Clock
from remuda.manager.config.fleet_setup import autoscaler_of, fleet_setup, plugins_of
from remuda.manager.config.load import RunnerConfig
from remuda.manager.environments.cell_demand import CellDemand
from remuda.manager.environments.fleet_record import remove_record, write_record
from remuda.manager.environments.instances import Instances
from remuda.manager.environments.port import UNKNOWN_BYTES, JobPlace, PreparedPlace, Usage
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import SshError
from remuda.manager.errors import EnvironmentLostError, EnvironmentTemporaryError
from remuda.taskscaler.core.values import Demand, KeyDemand
from remuda.taskscaler.fleet.setup import GoneError
from remuda.taskscaler.loop import (
    AcquireTimeoutError,
    FleetSetup,
    GroupStatus,
    NoMetrics,
    Scaler,
    ScalerMetrics,
    ScalerStatus,
)
from remuda.taskscaler.loop.provider_scaler import ProvidedScaler
from remuda.taskscaler.loop.sweep import SweepResult, sweep
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient

FIRST_LOOK_SECONDS = 60.0
"""How long to wait for the groups to show their instances, when jobs of an earlier process are looked for."""
RECOVER_SECONDS = 30.0
"""How long one instance may take to say whether it has such jobs."""
LOOK_SECONDS = 0.2


class AutoscaledEnvironment:
    """Jobs on instances of groups."""

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
        """ConfigError: the configuration names a key that cannot be read. `plugins` makes the group of a plugin.

        `base` is for `Instances`.
        """
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
        """Instances that are gone, and why; while jobs of theirs are here."""
        self._taken = 0
        self._running: asyncio.Task[None] | None = None
        self._is_discarded = self.is_closed = False
        self._log = logger("manager").bind(runner=runner.short_token)
        self.demand: CellDemand | None = None
        """Tells what the server has for this manager; None: nobody does, and only jobs that wait here count."""
        metrics = self._metrics = NoMetrics() if counts is None else counts(lambda: self._runner)
        self._scaler: Scaler | ProvidedScaler
        if runner.remuda.plugin_scales:
            self._scaler = ProvidedScaler(
                self._setup,
                next(iter(self._plugins.values())),
                machines=self._instances,
                demand=self._ask_demand,
                clock=clock,
                metrics=metrics,
                on_lost=self._note_lost,
            )
        else:
            self._scaler = Scaler(
                self._setup,
                self._plugins,
                machines=self._instances,
                folder=folder,
                demand=self._ask_demand,
                clock=clock,
                metrics=metrics,
                on_lost=self._note_lost,
            )

    # For who runs it.

    @property
    def runner(self) -> RunnerConfig:
        """Whose machines they are."""
        return self._runner

    @property
    def setup(self) -> FleetSetup:
        """What it scales."""
        return self._setup

    async def run(self) -> None:
        """Keep the machines as the policies want them, until cancelled."""
        self._running = asyncio.current_task()
        await self._scaler.run()

    def setup_for(self, runner: RunnerConfig) -> FleetSetup:
        """What it would scale with another configuration. ConfigError: a key cannot be read."""
        return self._setup if runner == self._runner else fleet_setup(runner, system_id=self._system_id)

    def change(self, runner: RunnerConfig, setup: FleetSetup) -> None:
        """Another configuration, of the same runner and with the same plugins, and what `setup_for` makes of it."""
        if runner == self._runner:
            return
        if plugins_of(runner) != plugins_of(self._runner):
            self._log.warning("another plugin counts after a restart; what else has changed waits for that, too")
            return
        self._runner, self._setup = runner, setup
        self._instances.change(runner, setup)
        self._scaler.change(setup)

    def set_taken(self, slots: int) -> None:
        """Set the number of the manager's slots taken by jobs of this environment and by requests for some."""
        self._taken = slots
        self._tell()

    def end_recovery(self) -> None:
        """The search for jobs of earlier processes is over."""
        self._scaler.end_recovery()

    def discard(self) -> None:
        """The runner is not configured any more: its machines go when it is closed."""
        self._is_discarded = True
        because = "their runner is not configured any more"
        self._setup = msgspec.structs.replace(self._setup, delete_on_shutdown=True, delete_because=because)
        self._scaler.change(self._setup)

    def drain(self, *, is_draining: bool, is_ending: bool = False) -> None:
        """Whether no more jobs are asked for; `is_ending`: nor ever will be."""
        self._scaler.drain(is_draining=is_draining, is_ending=is_ending)

    def refresh(self) -> None:
        """Look at the provider soon: something may have changed there."""
        self._scaler.look()

    def status(self) -> ScalerStatus:
        return self._scaler.status()

    async def sweep(self, owners: Callable[[], Collection[str]], *, remove: bool) -> SweepResult:
        """Instances that none of these, nor anybody else here, looks after any more."""
        starting = {group.name: _start_of(group) for group in self.status().groups if not group.plugin}
        swept = await sweep(
            self._setup,
            self._plugins,
            owners,
            folder=self._folder,
            clock=self._clock,
            remove=remove,
            not_begun=starting,
        )
        self._metrics.set_orphans(len({one.instance for one in swept.found} - set(swept.removed)))
        return swept

    # As every environment.

    def capacity(self) -> int | None:
        return self._scaler.capacity()

    async def acquire(self, place: JobPlace) -> str:
        if place.key in self._held:
            return self._held[place.key]
        self._waiting.add(place.key)
        try:
            self._tell()
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
        # One of this name is there again.
        self._lost.pop(slot.instance, None)
        self._tell()
        return slot.instance

    def adopt(self, place: JobPlace, machine: str) -> None:
        self._held[place.key] = machine
        if not self._scaler.adopt(place.key, machine):
            self._lost[machine] = f"no group has the instance {machine} any more"
        self._tell()

    async def prepare(self, place: JobPlace, machine: str) -> PreparedPlace:
        with self._errors(machine):
            prepared = await (await self._machine(machine)).prepare(place)
        return msgspec.structs.replace(prepared, notes=self._notes(machine), slot=self._scaler.slot_number(place.key))

    async def before(self, place: JobPlace, machine: str) -> str:
        with self._errors(machine):
            return await (await self._machine(machine)).hook("before_job", place.before_job, place)

    async def after(self, place: JobPlace, machine: str) -> str:
        with self._errors(machine):
            return await (await self._machine(machine)).hook("after_job", place.after_job, place)

    async def connect(self, machine: str) -> AgentClient:
        with self._errors(machine):
            client = await (await self._machine(machine)).connect()
        self._scaler.report(machine, is_well=True)
        return client

    async def recover(self) -> Sequence[str]:
        """Those whose agents have jobs, and those that cannot be asked."""
        found: list[str] = []

        async def look(name: str) -> None:
            try:
                async with asyncio.timeout(RECOVER_SECONDS):
                    has_jobs = await (await self._machine(name)).has_jobs()
            except (SshError, TemporaryError, TimeoutError):
                has_jobs = True
            except (PermanentError, EnvironmentLostError):
                has_jobs = False
            if has_jobs:
                found.append(name)

        names = await self._running_instances()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(look(name), name=f"look for jobs on {name}")
        return sorted(found)

    async def usage(self, folders: Sequence[str] = ()) -> Usage:
        """A machine with a full disk is unwell, and replaced: what is left is never the reason to ask for no job."""
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
            self._tell()

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        try:
            await self._scaler.close()
            if self._is_discarded:
                await asyncio.to_thread(remove_record, self._folder, self._setup.name)
        finally:
            self.is_closed = True
            self._metrics.clear()
            await self._instances.close()

    async def _running_instances(self) -> list[str]:
        """Instances that a group shows as running, once all groups have shown theirs or had time to."""
        until = self._clock.monotonic() + FIRST_LOOK_SECONDS
        while True:
            now = self._scaler.status()
            if all(group.updated_at for group in now.groups) or self._clock.monotonic() >= until:
                return [one.name for one in now.instances if one.provider_state in ("running", "")]
            await self._clock.sleep(LOOK_SECONDS)

    async def _connect_info(self, instance: str) -> ConnectInfo:
        return await self._scaler.connect_info(instance)

    async def _machine(self, name: str) -> RemoteMachine:
        if name in self._lost:
            raise EnvironmentLostError(self._lost[name])
        return await self._instances.reached(name)

    @contextmanager
    def _errors(self, machine: str) -> Iterator[None]:
        try:
            yield
        except GoneError as error:
            # Its slot was free, or it would be lost: a job that is over and could not be cleaned up has none.
            raise EnvironmentLostError(self._lost.get(machine, str(error))) from error
        except (SshError, TemporaryError, PermanentError) as error:
            if machine in self._lost:
                raise EnvironmentLostError(self._lost[machine]) from error
            # A plugin that does not say how to reach a machine, as one that has not begun yet, tells nothing about it.
            if isinstance(error, SshError):
                self._scaler.report(machine, is_well=False)
            raise EnvironmentTemporaryError(str(error)) from error

    def _note_lost(self, instance: str, holders: Sequence[str], why: str) -> None:
        """An instance is gone without our doing: its jobs need not wait until that shows on their connections."""
        about = {"machine": instance, "jobs": len(holders)} | ({"cause": why} if why else {})
        self._log.error("an instance is gone, and nobody here asked for that", **about)
        if holders or instance in self._held.values():
            text = f"its group has the instance {instance} no more, and nobody here had it removed"
            self._lost[instance] = f"{text}: {why}" if why else text
        self._instances.cut(instance)

    def _notes(self, machine: str) -> tuple[str, ...]:
        """Addresses for the job's log, where the operator wants them there."""
        scaling, info = autoscaler_of(self._runner), self._instances.info(machine)
        if info is None:
            return ()
        shown = [("internal", info.internal_addr)] if scaling.log_internal_ip else []
        shown += [("external", info.external_addr)] if scaling.log_external_ip else []
        return tuple(f"Machine {machine} has the {kind} address {address}" for kind, address in shown if address)

    def _tell(self) -> None:
        self._scaler.set_open_requests(max(self._taken - len(self._held) - len(self._waiting), 0))

    async def _ask_demand(self, waiting: Mapping[str, int]) -> Demand:
        if self.demand is not None:
            return await self.demand.ask(waiting)
        return Demand(keys=tuple(KeyDemand(key=key, waiting=jobs) for key, jobs in sorted(waiting.items()) if jobs))


def _start_of(group: GroupStatus) -> str:
    """How far a plugin is that has never run."""
    if group.starting_seconds is not None:
        before = f"; the last start failed: {group.error}" if group.error else ""
        return f"its plugin is starting, {group.starting_seconds:.0f} s so far{before}"
    return f"its plugin cannot be started: {group.error}" if group.error else "its plugin has not been started yet"
