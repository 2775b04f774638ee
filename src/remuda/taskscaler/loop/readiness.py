"""Makes instances that run ready for jobs, and looks whether those that are ready still are well.

New ones are prepared at the same time, but only so many; one whose group lets it go meanwhile is left. Those that are
ready are checked now and then, and without delay when a job says that something is wrong. Both only tell the roster
what came of it. Calls have deadlines, and nobody waits here for a job's sake: a check that hangs holds up no acquire.
"""

import asyncio
from collections.abc import Awaitable, Callable

from remuda.fleeting.errors import PermanentError, TemporaryError, UnhealthyError
from remuda.fleeting.port import ConnectInfo, HasHeartbeat, InstanceGroup
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.waiting import happens_by
from remuda.taskscaler.core.values import InstanceState
from remuda.taskscaler.fleet.members import Member, to_prepare
from remuda.taskscaler.fleet.roster import Roster
from remuda.taskscaler.fleet.setup import Machines, ScalerMetrics
from remuda.taskscaler.loop.deadlines import within
from remuda.telemetry.logs import logger

AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=30.0)
CHECKS = 50
"""Health checks at the same time."""
CHECK_SECONDS = 60.0
PACE_SECONDS = 0.2
"""Between looks at all instances."""
_CHECKED = frozenset({InstanceState.READY, InstanceState.SUSPECT})


class Readiness:
    """Prepares the instances of a fleet, and checks them."""

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
        """`changed`: somebody is ready or not any more; `look`: the group of that name should be looked at."""
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
        """Instances have come, gone, or are to be checked at once."""
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._preparing.clear()
        self._checking.clear()
        preparing, checking = asyncio.Semaphore(self._roster.setup.preparing), asyncio.Semaphore(CHECKS)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                self._begin(tasks, preparing)
                pause = self._check(tasks, checking)
                await self._clock.sleep(min(PACE_SECONDS, pause))
                await happens_by(
                    self._clock, self._wake, within_seconds=max(pause - PACE_SECONDS, 0.0), name="next check"
                )

    def _begin(self, tasks: asyncio.TaskGroup, limit: asyncio.Semaphore) -> None:
        owner = self._roster.setup.owner
        wanted = {name: one for name, one in self._roster.members.items() if to_prepare(one, owner=owner)}
        for name, (member, task) in list(self._preparing.items()):
            if wanted.get(name) is not member:
                del self._preparing[name]
                task.cancel()
        for name in wanted.keys() - self._preparing.keys():
            member = wanted[name]
            task = tasks.create_task(self._prepare(name, member, limit), name=f"prepare {name}")
            self._preparing[name] = member, task

    async def _prepare(self, name: str, member: Member, limit: asyncio.Semaphore) -> None:
        began, failures = self._clock.now(), 0
        while True:
            left = member.begun_at + self._roster.groups[member.group].limits.creation_seconds - self._clock.now()
            try:
                async with limit:
                    info = await self._connect_info(name)
                    await within(
                        self._clock, max(left, 1.0), self._machines.prepare(name, info), what=f"to prepare {name}"
                    )
            except PermanentError as error:
                self._log.warning("an instance could not be prepared and goes", instance=name, cause=str(error))
                self._finish_preparing(name, member, str(error))
                return
            except TemporaryError as error:
                failures += 1
                member.error, member.info = str(error), None
                self._log.info("an instance is not ready yet", instance=name, cause=str(error))
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
        """Begin the checks that are due; seconds until the next one is."""
        now, soonest = self._clock.now(), self._roster.setup.heartbeat_seconds
        for name, member in self._roster.members.items():
            known = self._roster.slots.instance(name)
            if known is None or known.state not in _CHECKED or member.missed or name in self._checking:
                continue
            if member.check_at <= now:
                self._checking.add(name)
                tasks.create_task(self._check_one(name, member, limit), name=f"check {name}")
            else:
                soonest = min(soonest, member.check_at - now)
        return soonest

    async def _check_one(self, name: str, member: Member, limit: asyncio.Semaphore) -> None:
        found: str | None = None
        is_told = True
        try:
            async with limit:
                plugin = self._plugin_of(member.group)
                if isinstance(plugin, HasHeartbeat):
                    what = f"Heartbeat of {name}"
                    await within(self._clock, CHECK_SECONDS, plugin.heartbeat(member.id), what=what)
                what = f"a check of {name}"
                await within(self._clock, CHECK_SECONDS, self._machines.check(name), what=what)
        except UnhealthyError as error:
            found = str(error)
        except (TemporaryError, PermanentError) as error:
            # The plugin could not be asked, how to connect included, which says nothing of the instance.
            self._log.info("an instance could not be checked", instance=name, cause=str(error))
            is_told = False
        self._checking.discard(name)
        if self._roster.members.get(name) is not member:
            return
        was = member.unanswered
        if is_told:
            self._roster.note_check(name, found, self._clock.now())
        else:
            member.check_at = self._clock.now() + self._roster.setup.heartbeat_seconds
        if found is not None:
            member.info = None
            self._log.warning("an instance is not well", instance=name, failures=member.unanswered, cause=found)
            self._look_at(member.group)
        if was or found is not None:
            self._changed()
        self._wake.set()
