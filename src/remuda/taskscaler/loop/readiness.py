"""Prepares running instances for jobs, and checks the health of ready ones at intervals and after bad reports of jobs.

Instances are prepared concurrently, up to a limit; if one is removed meanwhile, its preparation is cancelled. Calls
have deadlines, and a check that hangs delays no job."""

import asyncio
from collections.abc import Awaitable, Callable

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError
from remuda.fleeting.port import ConnectInfo, HasHeartbeat, InstanceGroup
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import wait_for_any_event
from remuda.taskscaler.core.values import InstanceState
from remuda.taskscaler.fleet.members import Member, to_prepare
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.setup import Machines, ScalerMetrics
from remuda.taskscaler.loop.deadlines import within
from remuda.telemetry.logs import logger

AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=30.0)
CHECKS = 50
"""Concurrent health checks."""
CHECK_SECONDS = 60.0
PACE_SECONDS = 0.2
"""Least time between two passes over all instances."""
_CHECKED = frozenset({InstanceState.READY, InstanceState.SUSPECT})


class Readiness:
    """Prepares and checks instances. Calls `changed` when an instance was prepared, could not be prepared, or changed
    its health; calls `look` with the group of an unhealthy instance, so that the group's instances are listed again."""

    def __init__(
        self,
        roster: Roster,
        machines: Machines,
        *,
        connect_info: Callable[[str], Awaitable[ConnectInfo]],
        plugin_of: Callable[[str], InstanceGroup],
        clock: Clock,
        metrics: ScalerMetrics,
        changed: Callable[[], None],
        look: Callable[[str], None],
    ) -> None:
        self._roster = roster
        self._machines = machines
        self._connect_info = connect_info
        self._plugin_of = plugin_of
        self._clock = clock
        self._metrics = metrics
        self._changed = changed
        self._look_at = look
        self._wake = asyncio.Event()
        self._preparing: dict[str, tuple[Member, asyncio.Task[None]]] = {}
        self._checking: set[str] = set()
        self._log = logger("scaler").bind(fleet=roster.setup.name)

    def look(self) -> None:
        """Make `run` prepare and check instances now, because some appeared or disappeared, or a check is due."""
        self._wake.set()

    async def run(self) -> None:
        self._preparing.clear()
        self._checking.clear()
        preparing, checking = asyncio.Semaphore(self._roster.setup.preparing), asyncio.Semaphore(CHECKS)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                self._begin(tasks, preparing)
                pause = self._check(tasks, checking)
                await self._clock.sleep(min(PACE_SECONDS, pause))
                await wait_for_any_event(
                    self._clock, self._wake, within_seconds=max(pause - PACE_SECONDS, 0.0), name="next check"
                )

    def _begin(self, tasks: asyncio.TaskGroup, limit: asyncio.Semaphore) -> None:
        owner = self._roster.setup.owner
        unprepared = {name: member for name, member in self._roster.members.items() if to_prepare(member, owner=owner)}
        for name, (member, task) in list(self._preparing.items()):
            if unprepared.get(name) is not member:
                del self._preparing[name]
                task.cancel()
        for name in unprepared.keys() - self._preparing.keys():
            member = unprepared[name]
            task = tasks.create_task(self._prepare(name, member, limit), name=f"prepare {name}")
            self._preparing[name] = member, task

    async def _prepare(self, name: str, member: Member, limit: asyncio.Semaphore) -> None:
        began, failures = self._clock.now(), 0
        while True:
            remaining = member.begun_at + self._roster.groups[member.group].limits.creation_seconds - self._clock.now()
            try:
                async with limit:
                    info = await self._connect_info(name)
                    await within(
                        self._clock,
                        max(remaining, 1.0),
                        self._machines.prepare(name, info),
                        what=f"the preparation of {name}",
                    )
            except PermanentError as error:
                self._log.warning("cannot prepare an instance; removing it", instance=name, cause=str(error))
                self._finish_preparing(name, member, str(error))
                return
            except TemporaryError as error:
                failures += 1
                member.error, member.info = str(error), None
                self._log.info("cannot prepare an instance yet; will retry", instance=name, cause=str(error))
            else:
                self._metrics.observe("task_instance_readiness", self._clock.now() - began)
                self._finish_preparing(name, member, None)
                return
            await self._clock.sleep(AGAIN.delay(failures))

    def _finish_preparing(self, name: str, member: Member, error: str | None) -> None:
        if self._roster.members.get(name) is member:
            del self._preparing[name]
            if error is None:
                self._roster.mark_prepared(name, self._clock.now())
            else:
                self._roster.mark_unpreparable(name, error, self._clock.now())
            self._changed()

    def _check(self, tasks: asyncio.TaskGroup, limit: asyncio.Semaphore) -> float:
        """Start due health checks in `tasks`, which run `limit` at a time. Returns seconds until the next is due."""
        now, soonest = self._clock.now(), self._roster.setup.heartbeat_seconds
        for name, member in self._roster.members.items():
            instance = self._roster.slots.instance(name)
            if instance is None or instance.state not in _CHECKED or member.missed or name in self._checking:
                continue
            if member.check_at <= now:
                self._checking.add(name)
                tasks.create_task(self._check_instance(name, member, limit), name=f"check {name}")
            else:
                soonest = min(soonest, member.check_at - now)
        return soonest

    async def _check_instance(self, name: str, member: Member, limit: asyncio.Semaphore) -> None:
        problem: str | None = None
        is_checked = True
        try:
            async with limit:
                plugin = self._plugin_of(member.group)
                if isinstance(plugin, HasHeartbeat):
                    what = f"Heartbeat of {name}"
                    await within(self._clock, CHECK_SECONDS, plugin.heartbeat(member.id), what=what)
                what = f"a check of {name}"
                await within(self._clock, CHECK_SECONDS, self._machines.check(name), what=what)
        except UnhealthyError as error:
            problem = str(error)
        except (TemporaryError, PermanentError) as error:
            # The check itself failed, which says nothing about the instance.
            self._log.info("health check of an instance not possible; trying again", instance=name, cause=str(error))
            is_checked = False
        self._checking.discard(name)
        if self._roster.members.get(name) is not member:
            return
        failures_before = member.unanswered
        if is_checked:
            self._roster.note_check(name, problem, self._clock.now())
        else:
            member.check_at = self._clock.now() + self._roster.setup.heartbeat_seconds
        if problem is not None:
            member.info = None
            self._log.warning(
                "instance failed its health check; it gets no new jobs until it is healthy",
                instance=name,
                failures=member.unanswered,
                cause=problem,
            )
            self._look_at(member.group)
        if failures_before or problem is not None:
            self._changed()
        self._wake.set()
