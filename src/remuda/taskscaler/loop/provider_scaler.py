"""Scaler of a fleet whose plugin scales by itself, with the interface of `Scaler`, for the runner manager.

The plugin (a *provider*, `fleeting.port.Provides`) says how many jobs there may be and which instance each gets. At
intervals the scaler reports to it the demand and the holders (ids of jobs with an instance), and reads the list of
instances. Nothing is stored: the manager's journal has the holders. Invariants: a holder has at most one instance; a
release is reported until the plugin has accepted it or has refused it permanently, or the holder acquires an instance
again."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import (
    Capability,
    ConnectInfo,
    InstanceGroup,
    InstanceState,
    Provides,
    RoomAtProvider,
    Wanted,
    Wishes,
)
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.taskscaler.core.slots import Slot
from remuda.taskscaler.fleet.members import is_gone
from remuda.taskscaler.fleet.setup import (
    AcquireTimeoutError,
    FleetSetup,
    NoMetrics,
    ScalerHost,
    ScalerMetrics,
    instance_name,
)
from remuda.taskscaler.fleet.status import GroupStatus, InstanceStatus, ScalerStatus
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.demand import DemandTracker
from remuda.taskscaler.loop.instance_end import close_plugin
from remuda.telemetry.logs import logger

ACQUIRES = 50
"""Limit on concurrent calls of acquire: a connection carries at most 100 calls."""
CALL_SECONDS = 90.0
CLOSE_SECONDS = 30.0
_AGAIN = Backoff(first_seconds=0.5, ceiling_seconds=30.0)
MISSES = 2
"""Number of updates in a row without an instance, after which it counts as lost."""
_NO_METRICS = NoMetrics()


class ProvidedScaler:
    """Scaler of a fleet whose plugin decides itself how many instances there are: reports demand and released instances
    to the plugin, and gives jobs the instances that the plugin assigns. `setup` must have one group."""

    def __init__(
        self,
        setup: FleetSetup,
        plugin: InstanceGroup,
        *,
        host: ScalerHost,
        clock: Clock,
        metrics: ScalerMetrics = _NO_METRICS,
    ) -> None:
        self._setup = setup
        self._plugin = plugin
        self._group = setup.groups[0].name
        self._host = host
        self._clock = clock
        self._metrics = metrics
        self._log = logger("scaler").bind(fleet=setup.name)
        self._wake = asyncio.Event()
        self._demand_tracker = DemandTracker(host.fetch_demand, clock, changed=self._wake.set)
        self._held: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._waits: set[str] = set()
        self._released: dict[str, tuple[bool, tuple[str, ...]]] = {}
        self._shown: dict[str, InstanceState] = {}
        self._missed: dict[str, int] = {}
        self._acquires = asyncio.Semaphore(ACQUIRES)
        self._room = RoomAtProvider(capacity=0)
        self._open = 0
        self._begun = asyncio.Event()
        self._is_complete = False
        self._updated_at = 0.0
        self._starting_at: float | None = None
        self._error = ""
        self._name = ""
        self._note = "the plugin scales by itself"

    async def run(self) -> None:
        """Start the plugin, then report demand to it and read its instances, at intervals until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._demand_tracker.run(lambda: self._setup), name="demand of the server")
            await self._begin()
            failures = 0
            while True:
                self._wake.clear()
                try:
                    await self._exchange()
                except (TemporaryError, PermanentError) as error:
                    failures += 1
                    self._note_error(str(error))
                else:
                    failures, self._error = 0, ""
                pause = max(_AGAIN.delay(failures), self._setup.expecting_seconds) if failures else 0.0
                await self._clock.sleep(pause)
                seconds = self._setup.expecting_seconds
                await wait_for_any_event(
                    self._clock, self._wake, within_seconds=seconds, name="next question to the provider"
                )

    async def close(self) -> None:
        """Report releases that the plugin has not accepted yet, and stop the plugin. Its instances stay."""
        with suppress(TemporaryError, PermanentError):
            await within(self._clock, CLOSE_SECONDS, self._shut_down_plugin(), what="the shutdown of the provider")
        await close_plugin(self._group, self._plugin)

    def capacity(self) -> int | None:
        """The plugin's limit on concurrent jobs, at least the number of present jobs; None: any number."""
        here = len(self._held) + len(self._waits)
        return None if self._room.capacity is None else max(self._room.capacity, here)

    def set_open_requests(self, count: int) -> None:
        """Set the number of unanswered requests for jobs. If it has changed, `run` reports it to the plugin soon."""
        if count != self._open:
            self._open = count
            self._wake.set()

    async def acquire(self, holder: str, *, key: str = "", caches: Collection[str] = ()) -> Slot:
        """Wait until the plugin assigns an instance to a job, and return it as a slot. `key`: the job's needs of a
        runner; `caches`: keys of its caches. Raises AcquireTimeoutError if the plugin refuses permanently."""
        if holder in self._held:
            return Slot(instance_name(self._group, self._held[holder]), 0)
        self._waits.add(holder)
        self._released.pop(holder, None)
        self._demand_tracker.add(holder, key)
        self._wake.set()
        try:
            instance = await self._acquire_instance(holder, key, sorted(caches))
        except BaseException:
            self._forget(holder, is_used=False)
            raise
        finally:
            self._waits.discard(holder)
            self._demand_tracker.remove(holder)
        self._held[holder] = instance
        self._since.setdefault(instance, self._clock.now())
        self._metrics.count_task_operation("acquire")
        return Slot(instance_name(self._group, instance), 0)

    def slot_number(self, holder: str) -> int | None:
        """None, because plugins that scale by themselves do not number slots."""
        return None

    def adopt(self, holder: str, instance: str) -> bool:
        """Record that a job of an earlier process runs on an instance. False if the instance is not of this plugin."""
        prefix = instance_name(self._group, "")
        if not instance.startswith(prefix):
            return False
        self._held[holder] = instance.removeprefix(prefix)
        self._since.setdefault(self._held[holder], self._clock.now())
        return True

    def end_recovery(self) -> None:
        """Make `run` tell the plugin that all jobs of earlier processes are adopted, so it may free other instances."""
        self._is_complete = True
        self._wake.set()

    def release(self, holder: str, *, is_used: bool = True, warmed: Collection[str] = ()) -> None:
        """End a job's use of its instance. `is_used`: it started. `warmed`: keys of caches left on the instance."""
        if holder in self._held:
            self._metrics.count_task_operation("release")
        self._forget(holder, is_used=is_used, warmed=warmed)

    async def connect_info(self, instance: str) -> ConnectInfo:
        """Ask the plugin how to log in; nothing is cached. Raises TemporaryError or PermanentError if it fails."""
        name = instance.removeprefix(instance_name(self._group, ""))
        return await within(
            self._clock, CALL_SECONDS, self._plugin.connect_info(name), what=f"ConnectInfo of {instance}"
        )

    def report(self, instance: str, *, is_well: bool) -> None:
        """Accept a job's report on its instance. If bad, the plugin's list is read soon to notice a loss earlier."""
        if not is_well:
            self._wake.set()

    def look(self) -> None:
        """Make `run` report demand to the plugin and read its instances soon instead of at the next interval."""
        self._wake.set()

    def drain(self, *, is_draining: bool = True, is_ending: bool = False) -> None:
        """Set whether the manager has stopped requesting jobs: then jobs that wait at the server are not reported to
        the plugin as demand. `is_ending` has no effect."""
        self._demand_tracker.is_closed = is_draining
        self._wake.set()

    def change(self, setup: FleetSetup) -> None:
        """Apply changed intervals of a reloaded configuration; the plugin and its configuration stay."""
        self._setup = setup

    def status(self) -> ScalerStatus:
        limits = self._setup.groups[0].limits
        return ScalerStatus(
            name=self._setup.name,
            owner=self._setup.owner,
            at=self._clock.now(),
            held=len(self._held),
            waiting=len(self._waits),
            reserved=self._open + len(self._waits),
            capacity=self.capacity(),
            instances=tuple(self._instance(instance, state) for instance, state in sorted(self._shown.items())),
            requests=(),
            groups=(
                GroupStatus(
                    name=self._group,
                    plugin=self._name,
                    is_current=not self._error and bool(self._updated_at),
                    starting_seconds=None if self._starting_at is None else self._clock.now() - self._starting_at,
                    error=self._error,
                    note=self._note,
                    failures=0,
                    failed_at=0.0,
                    boot_seconds=0.0,
                    boots=0,
                    max_instances=limits.max_instances,
                    quota=None,
                    updated_at=self._updated_at,
                ),
            ),
            plan=None,
            explanation=self._room.explanation or f"{self._note}.",
            decisions=(),
            demand_error=self._demand_tracker.error,
        )

    async def _begin(self) -> None:
        failures = 0
        group = self._setup.groups[0]
        while True:
            self._starting_at = self._clock.now()
            try:
                info = await within(
                    self._clock, CALL_SECONDS, self._plugin.init(group.config, group.settings), what="Init"
                )
                self._name = f"{info.id} {info.version}".strip()
                if Capability.PROVIDER not in info.capabilities:
                    able = ", ".join(sorted(info.capabilities)) or "nothing"
                    self._note = (
                        f"plugin_scales is set, but the plugin is not a provider (it has: {able}); remove plugin_scales"
                    )
                self._begun.set()
                return
            except (TemporaryError, PermanentError) as error:
                failures += 1
                self._note_error(str(error))
            finally:
                self._starting_at = None
            await self._clock.sleep(_AGAIN.delay(failures))

    async def _exchange(self) -> None:
        """Report releases, jobs and demand to the plugin; read capacity and instances; report lost jobs."""
        provider = self._provider
        for holder, released in list(self._released.items()):
            if self._released.get(holder) is not released:
                continue
            is_used, warmed = released
            try:
                call = provider.release(holder, is_used=is_used, warmed=warmed)
                await within(self._clock, CALL_SECONDS, call, what="Release")
            except PermanentError as error:
                self._log.warning(
                    "plugin refused to release a job's instance; not trying again, not reporting it as used any more",
                    holder=holder,
                    cause=str(error),
                )
            # During the call the holder may have acquired an instance again, or released that one, too.
            if self._released.get(holder) is released:
                del self._released[holder]
        self._room = await within(self._clock, CALL_SECONDS, provider.room(self._wishes()), what="Room")
        before = set(self._held.values()) | self._shown.keys()
        shown = await within(self._clock, CALL_SECONDS, self._update(), what="Update")
        self._updated_at = self._clock.now()
        existing = {name for name, state in shown.items() if not is_gone(state)}
        missed = {name: self._missed.get(name, 0) + 1 for name in before - existing}
        gone = [name for name, times in missed.items() if times >= MISSES or (name in shown and is_gone(shown[name]))]
        self._missed = {name: times for name, times in missed.items() if name not in gone}
        self._shown = {**{name: state for name, state in self._shown.items() if name in self._missed}, **shown}
        for name in gone:
            self._shown.pop(name, None)
            await self._drop_instance(name)

    async def _update(self) -> Mapping[str, InstanceState]:
        shown = await self._plugin.update()
        return {name: state for name, state in shown.items() if not is_gone(state) or name in self._held.values()}

    def _wishes(self) -> Wishes:
        wanted = [
            Wanted(
                key=key.key,
                running=key.running,
                waiting=key.waiting,
                ready=key.ready,
                soon=sum(soon.jobs for soon in key.soon),
            )
            for key in self._demand_tracker.demand().keys
        ]
        return Wishes(wanted=wanted, open_requests=self._open, held=dict(self._held), is_complete=self._is_complete)

    async def _acquire_instance(self, holder: str, key: str, caches: Sequence[str]) -> str:
        failures = 0
        await self._begun.wait()
        while True:
            try:
                async with self._acquires:
                    return await self._provider.acquire(holder, key=key, caches=caches)
            except PermanentError as error:
                raise AcquireTimeoutError(str(error)) from error
            except TemporaryError as error:
                failures += 1
                self._note_error(str(error))
                await self._clock.sleep(_AGAIN.delay(failures))

    async def _shut_down_plugin(self) -> None:
        if self._begun.is_set():
            for holder, (is_used, warmed) in list(self._released.items()):
                await self._provider.release(holder, is_used=is_used, warmed=warmed)
            await self._plugin.shutdown()

    def _forget(self, holder: str, *, is_used: bool, warmed: Collection[str] = ()) -> None:
        self._held.pop(holder, None)
        self._released[holder] = (is_used, tuple(sorted(warmed)))
        self._wake.set()

    async def _drop_instance(self, instance: str) -> None:
        holders = [holder for holder, held in self._held.items() if held == instance]
        self._since.pop(instance, None)
        for holder in holders:
            del self._held[holder]
        name = instance_name(self._group, instance)
        if holders:
            self._host.on_lost(name, holders, "")
        with suppress(TemporaryError, PermanentError):
            await within(
                self._clock, CALL_SECONDS, self._host.machines.forget(name), what=f"closing the connections to {name}"
            )

    @property
    def _provider(self) -> Provides:
        if not isinstance(self._plugin, Provides):
            raise PermanentError(self._note)
        return self._plugin

    def _note_error(self, cause: str) -> None:
        if cause != self._error:
            self._log.warning("cannot get instances from the plugin that scales the fleet; trying again", cause=cause)
        self._error = cause

    def _instance(self, instance: str, state: InstanceState) -> InstanceStatus:
        holders = tuple(holder for holder, held in self._held.items() if held == instance)
        since = self._since.get(instance, self._updated_at)
        return InstanceStatus(
            name=instance_name(self._group, instance),
            id=instance,
            group=self._group,
            state=state.value,
            provider_state=state.value,
            since=since,
            slots_used=len(holders),
            capacity=self._setup.groups[0].limits.capacity,
            uses=len(holders),
            created_at=since,
            idle_since=None,
            cause="unexpected",
            address="",
            owner=self._setup.owner,
            failures=0,
            error="",
            holders=holders,
        )
