"""The scaler of one fleet: the class that a runner manager uses. It runs all tasks of the fleet.

A plan is made after every change, at the time that the last plan names, and at least every `LOOK_SECONDS`. Calls
change the state in memory at once. The state file is written before a change has effects outside: a job gets its slot
after its holder is written. After a crash the state file restores instances and holders."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.port import ConnectInfo, InstanceGroup
from remuda.lib.clock import Clock
from remuda.lib.sqlite_writer import Writer
from remuda.lib.waiting import wait_for_any_event
from remuda.taskscaler.core.explain import describe
from remuda.taskscaler.core.slots import Slot, Waiter
from remuda.taskscaler.fleet.roster import Gone, Roster
from remuda.taskscaler.fleet.setup import (
    AcquireTimeoutError,
    FleetSetup,
    GoneError,
    NoMetrics,
    ScalerHost,
    ScalerMetrics,
)
from remuda.taskscaler.fleet.status import ScalerStatus, status_of
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.demand import DemandTracker
from remuda.taskscaler.loop.group_watch import Deadlines, FleetContext, GroupWatch
from remuda.taskscaler.loop.instance_end import GoneInstances, end
from remuda.taskscaler.loop.planning import Planner
from remuda.taskscaler.loop.readiness import Readiness
from remuda.taskscaler.loop.state import MakeWriter, StateFile, StateWriter, state_path
from remuda.telemetry.logs import logger

PACE_SECONDS = 0.2
"""Least time between plans, so that many changes make one plan."""
LOOK_SECONDS = 60.0
"""Longest time between plans."""
EXPIRING_SECONDS = 10.0
"""Connect info that expires within this time is fetched from the plugin again."""
CONNECT_SECONDS = 150.0
_NO_METRICS = NoMetrics()
_DEADLINES = Deadlines()


class _Wait(NamedTuple):
    future: asyncio.Future[Slot]
    waiter: Waiter


class Scaler:
    """Assigns slots to jobs, and creates and removes instances. `plugins`: by group name; `run` starts them. The
    constructor raises StateError, OSError or sqlite3.Error if the state file cannot be used."""

    def __init__(
        self,
        setup: FleetSetup,
        plugins: Mapping[str, InstanceGroup],
        *,
        host: ScalerHost,
        folder: Path,
        clock: Clock,
        metrics: ScalerMetrics = _NO_METRICS,
        writer: MakeWriter = Writer,
        deadlines: Deadlines = _DEADLINES,
    ) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._metrics = metrics
        self._on_lost = host.on_lost
        self._log = logger("scaler").bind(fleet=setup.name)
        self._roster = Roster(setup, metrics)
        self._file = StateFile(state_path(folder, setup.name), writer=writer)
        for name in self._roster.load(self._file.read(), clock.now()):
            self._log.warning(
                "group of an instance is not configured any more; the instance gets no jobs and is not deleted",
                instance=name,
            )
        self._state_writer = StateWriter(self._file, self._roster, clock)
        self._demand_tracker = DemandTracker(
            host.fetch_demand, clock, waiting=self._list_waiting, changed=self._wake.set
        )
        context = FleetContext(roster=self._roster, state_writer=self._state_writer, clock=clock, metrics=metrics)
        self._watches = {
            group.name: GroupWatch(
                group,
                plugins[group.name],
                context,
                changed=self._react,
                ended=self._drop_instances,
                deadlines=deadlines,
            )
            for group in setup.groups
        }
        self._readiness = Readiness(
            self._roster,
            host.machines,
            connect_info=self.connect_info,
            plugin_of=lambda group: self._watches[group].plugin,
            clock=clock,
            metrics=metrics,
            changed=self._react,
            look=lambda group: self._watches[group].look(),
        )
        self._planner = Planner(
            self._roster, self._demand_tracker, self._watches, clock=clock, metrics=metrics, ended=self._drop_instances
        )
        self._open = 0
        self._waits: dict[str, _Wait] = {}
        self._gone_instances = GoneInstances(host.machines, clock)

    async def run(self) -> None:
        """Start the plugins, then list instances, make plans and carry them out until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._state_writer.run(), name="state of the fleet")
            tasks.create_task(self._readiness.run(), name="readiness of instances")
            tasks.create_task(self._demand_tracker.run(lambda: self._roster.setup), name="demand of the server")
            tasks.create_task(self._gone_instances.run(), name="instances that are gone")
            for watch in self._watches.values():
                tasks.create_task(watch.run(), name=f"group {watch.name}")
            await self._plan_repeatedly()

    async def close(self) -> None:
        """Shut down the fleet. Called after `run` was cancelled. Instances stay, unless `delete_on_shutdown` is set."""
        try:
            await end(self._roster, self._watches, self._state_writer, self._clock)
            await self._gone_instances.finish()
        finally:
            for wait in self._waits.values():
                wait.future.cancel()
            self._file.close()

    def capacity(self) -> int | None:
        """How many jobs the manager may have, running and waiting ones included; None: any number. Before the first
        plan this is the number of present jobs, so no further job is requested."""
        used, waiting = self._roster.slots.used_count, len(self._roster.slots.waiters)
        if self._planner.last is None:
            return used + waiting
        reservable = self._planner.last.reservable
        return None if reservable is None else used + max(reservable - self._planner.granted, waiting)

    def set_open_requests(self, count: int) -> None:
        """Set the number of unanswered requests for jobs; each may need a slot of this fleet."""
        if count != self._open:
            self._open = count
            self._wake.set()

    async def acquire(self, holder: str, *, key: str = "", caches: Collection[str] = ()) -> Slot:
        """Wait for a slot for a job and return it; if it has one, at once. If the call is cancelled, the slot becomes
        free. `key`: what the job needs of a runner; `caches`: keys of its caches. Raises AcquireTimeoutError after
        `acquire_seconds`, unless an instance is starting for the job."""
        slot = self._roster.confirm(holder)
        wait = self._waits.get(holder)
        if wait is None:
            if slot is not None:
                return slot
            waiter = Waiter(holder=holder, since=self._clock.now(), caches=frozenset(caches))
            wait = self._waits[holder] = _Wait(asyncio.get_running_loop().create_future(), waiter)
            self._demand_tracker.add(holder, key)
            self._roster.slots.acquire(holder, now=waiter.since, caches=waiter.caches)
            self._react()
        try:
            return await asyncio.shield(wait.future)
        except asyncio.CancelledError:
            self.release(holder, is_used=False)
            raise

    def slot_number(self, holder: str) -> int | None:
        """The number of a job's slot on its instance, from 0; None if the job has no slot."""
        slot = self._roster.slots.slot(holder)
        return None if slot is None else slot.number

    def adopt(self, holder: str, instance: str) -> bool:
        """Give a job of an earlier process its slot again. False if the instance is of no group of this fleet."""
        is_adopted = self._roster.adopt(holder, instance, self._clock.now())
        self._react()
        return is_adopted

    def end_recovery(self) -> None:
        """Release restored slots of jobs that were not adopted or acquired again. Call after all jobs were adopted."""
        for holder in self._roster.end_recovery(self._clock.now()):
            self._log.info("releasing a slot: its job is unknown after the restart", holder=holder)
        self._react()

    def release(self, holder: str, *, is_used: bool = True, warmed: Collection[str] = ()) -> None:
        """End a job's use of its slot, or its wait for one. `is_used`: the job started. `warmed`: keys of the caches
        that the job left on the instance."""
        wait = self._waits.pop(holder, None)
        if wait is not None:
            wait.future.cancel()
        self._demand_tracker.remove(holder)
        if self._roster.release(holder, self._clock.now(), is_used=is_used, warmed=warmed):
            self._metrics.count_task_operation("release")
        self._react()

    async def connect_info(self, instance: str) -> ConnectInfo:
        """How to log in to an instance, cached while it is valid. Raises GoneError if the instance is gone, and
        TemporaryError or PermanentError of the plugin."""
        member = self._roster.members.get(instance)
        if member is None:
            raise GoneError(f"there is no instance {instance} any more")
        info = member.info
        is_lasting = info is not None and (
            info.expires_at is None or info.expires_at - self._clock.now() > EXPIRING_SECONDS
        )
        if info is None or not is_lasting or member.failures:
            watch = self._watches[member.group]
            # After a start of the manager the plugin may still be starting.
            if not watch.is_settled.is_set():
                await within(self._clock, CONNECT_SECONDS, watch.is_settled.wait(), what=f"the plugin of {instance}")
            call = watch.plugin.connect_info(member.id)
            try:
                info = await within(self._clock, CONNECT_SECONDS, call, what=f"ConnectInfo of {instance}")
            except TemporaryError:
                # A provider outage must not keep a job from an existing machine.
                if info is None or not is_lasting:
                    raise
            member.info = info
        return info

    def report(self, instance: str, *, is_well: bool) -> None:
        """Record if a job found its instance healthy; if not, it is checked at once unless the last check failed."""
        self._roster.note_report(instance, self._clock.now(), is_well=is_well)
        self._react()

    def change(self, setup: FleetSetup) -> None:
        """Apply changed policies, limits and intervals; plugins and their configuration stay."""
        self._roster.change(setup)
        self._react()
        self.look()

    def look(self) -> None:
        """Make the tasks of all groups ask their plugins for the instances soon instead of at the next interval."""
        for watch in self._watches.values():
            watch.look()

    def drain(self, *, is_draining: bool = True, is_ending: bool = False) -> None:
        """Set whether the manager has stopped requesting jobs, so only present jobs need instances. `is_ending`: it
        will never request jobs again, so starting instances that no job waits for are removed."""
        if (is_draining, is_ending) != (self._planner.is_draining, self._planner.is_ending):
            self._planner.is_ending = is_ending
            self._demand_tracker.is_closed = self._planner.is_draining = is_draining
            self._react()

    def status(self) -> ScalerStatus:
        return status_of(
            self._roster,
            plan=self._planner.last,
            decisions=self._planner.decisions,
            now=self._clock.now(),
            open_requests=self._open,
            capacity=self.capacity(),
            store_error=self._state_writer.error,
            demand_error=self._demand_tracker.error,
        )

    async def _plan_repeatedly(self) -> None:
        while True:
            self._wake.clear()
            plan = self._planner.plan(self._open)
            self._give_up(plan.terms.coming)
            self._readiness.look()
            if self._hand_out():
                self._wake.set()
            now = self._clock.now()
            ends = [waiter.since + self._roster.setup.acquire_seconds for waiter in self._roster.slots.waiters[:1]]
            times = [at for at in (*ends, plan.look_again_at) if at is not None and at > now]
            await self._clock.sleep(PACE_SECONDS)
            pause = min([LOOK_SECONDS, *(at - now for at in times)]) - PACE_SECONDS
            await wait_for_any_event(self._clock, self._wake, within_seconds=max(pause, 0.0), name="next plan")

    def _give_up(self, coming: int) -> None:
        """Let `acquire` raise AcquireTimeoutError for jobs that have waited too long. `coming`: number of slots of
        starting instances; so many jobs at the head of the queue go on waiting."""
        slots, seconds = self._roster.slots, self._roster.setup.acquire_seconds
        for waiter in slots.overdue(now=self._clock.now(), timeout_seconds=seconds, coming=coming):
            slots.stop_waiting(waiter.holder)
            self._demand_tracker.remove(waiter.holder)
            self._metrics.count_task_operation("acquire_timeout")
            if wait := self._waits.pop(waiter.holder, None):
                wait.future.set_exception(AcquireTimeoutError(self._why_not(seconds)))

    def _why_not(self, seconds: float) -> str:
        plan = self._planner.last
        causes = [describe(hindrance.because) for hindrance in plan.hindered] if plan is not None else []
        causes += [
            f"{group.name or 'the group'}: {group.error}" for group in self._roster.groups.values() if group.error
        ]
        return f"no slot became free within {seconds:g} seconds, and none is on its way: " + (
            "; ".join(causes) or "all slots that the limits allow are in use"
        )

    def _list_waiting(self) -> list[str]:
        return [waiter.holder for waiter in self._roster.slots.waiters]

    def _react(self) -> None:
        """Handle any change: assign slots, and wake the tasks that write the state file, check instances and plan."""
        self._hand_out()
        self._readiness.look()
        self._wake.set()

    def _hand_out(self) -> bool:
        """Assign free slots to jobs; True if any got one. `acquire` returns the slot when the state file is written."""
        grants = self._roster.hand_out()
        for holder, slot in grants:
            self._planner.granted += 1
            self._metrics.count_task_operation("acquire")
            self._state_writer.mark_changed(lambda holder=holder, slot=slot: self._hand_over(holder, slot))  # type: ignore[misc]
        self._state_writer.mark_changed()
        return bool(grants)

    def _hand_over(self, holder: str, slot: Slot) -> None:
        """Let `acquire` of a job return its slot, unless the job has lost the slot while the state file was written."""
        if self._roster.slots.slot(holder) == slot and (wait := self._waits.pop(holder, None)):
            self._demand_tracker.remove(holder)
            wait.future.set_result(slot)

    def _drop_instances(self, gone: Sequence[Gone]) -> None:
        """Report running jobs of instances that are gone as lost. Jobs that had not started wait for a slot again."""
        for instance in gone:
            lost = [holder for holder in instance.holders if holder not in self._waits]
            for holder in instance.holders:
                if holder in self._waits:
                    self._roster.slots.put_back(self._waits[holder].waiter)
            if lost:
                self._log.warning("instance disappeared; its running jobs fail", instance=instance.name, jobs=lost)
                self._on_lost(instance.name, lost, instance.why)
            self._gone_instances.add(instance.name)
        if gone:
            self._react()
