"""Tasks of one instance group: start its plugin, update the roster, request and delete instances.

Each group has its own tasks and every call a deadline, so a slow or hung plugin delays no other group or call. Requests
and deletions are stored before the plugin is called."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import CanRecover, Capability, HasStats, InstanceGroup, ProviderInfo, Settings, TaggedInstance
from remuda.fleeting.port import InstanceState as Shown
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.dataclass import dataclass
from remuda.lib.waiting import wait_for_any_event
from remuda.taskscaler.core.rebalancing import Meddling
from remuda.taskscaler.fleet.requests import PendingRequest
from remuda.taskscaler.fleet.roster import Gone, Roster
from remuda.taskscaler.fleet.setup import GroupSetup, ScalerMetrics, instance_name
from remuda.taskscaler.fleet.sightings import apply_update
from remuda.taskscaler.loop.deadlines import within
from remuda.taskscaler.loop.state import StateWriter
from remuda.telemetry.logs import logger

CALLS = 8
"""Limit on concurrent calls of increase, and the same limit for decrease."""
T = TypeVar("T")
AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Deadlines of plugin calls in seconds. Those of `fleeting.client` are shorter: it restarts a hung plugin first."""

    init: float = 150.0
    update: float = 90.0
    change: float = 330.0
    other: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    roster: Roster
    state_writer: StateWriter
    clock: Clock
    metrics: ScalerMetrics


class GroupWatch:
    """Runs the tasks of one group. Calls `changed` when a new plan is needed, `ended` with instances that are gone."""

    def __init__(
        self,
        setup: GroupSetup,
        plugin: InstanceGroup,
        context: FleetContext,
        *,
        changed: Callable[[], None],
        ended: Callable[[Sequence[Gone]], None],
        deadlines: Deadlines,
    ) -> None:
        self.name = setup.name
        self.plugin = plugin
        self.is_begun = False
        self.is_settled = asyncio.Event()
        """Clear while the plugin is being started."""
        self.is_settled.set()
        self._setup = setup
        self._roster = context.roster
        self._state_writer = context.state_writer
        self._clock = context.clock
        self._metrics = context.metrics
        self._changed = changed
        self._ended = ended
        self._deadlines = deadlines
        self._log = logger("scaler").bind(fleet=context.roster.setup.name, group=setup.name)
        self._look = asyncio.Event()
        self._asked = asyncio.Event()
        self._doomed: set[str] = set()
        self._under_way: set[str] = set()
        self._increases = 0
        self._decreases = 0
        self._stats_at = float("-inf")
        self._warned_of = Meddling.NONE

    @property
    def starts(self) -> int:
        """How often the plugin's process was started. A plugin in the manager's own process: 1 after `init`, else 0."""
        return int(getattr(self.plugin, "starts", self.is_begun))

    def look(self) -> None:
        """Make `run` ask the plugin for the group's instances within a second, instead of at the next interval."""
        self._look.set()

    def act(self) -> None:
        """Make `run` send queued requests and deletions to the plugin now."""
        self._asked.set()

    def delete(self, name: str) -> None:
        """Make `run` ask the plugin to delete an instance, which must be marked for deletion in the roster."""
        if name not in self._under_way:
            self._doomed.add(name)
            self._asked.set()

    async def run(self) -> None:
        """Start the plugin, then list its instances at intervals and send it requests until cancelled."""
        if not self.is_begun:
            await self._begin()
        self._increases = self._decreases = 0
        self._under_way.clear()
        self._roster.requests.interrupt(self.name, self._clock.now())
        self._asked.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name=f"updates of group {self.name}")
            await self._send(tasks)

    async def update(self) -> None:
        """Update the roster with the plugin's list. Raises TemporaryError or PermanentError if a plugin call fails."""
        began_at = self._clock.now()
        states = await self._call(self.plugin.update(), self._deadlines.update, "Update")
        if isinstance(info := getattr(self.plugin, "info", None), ProviderInfo):
            self._roster.groups[self.name].info = info  # a restart may have brought another version
        tags = await self._tags(states)
        self._metrics.count_internal_operation("reconcile")
        gone = apply_update(self._roster, self.name, states, now=self._clock.now(), began_at=began_at, tags=tags)
        self._state_writer.mark_changed()
        self._ended(gone)
        self._warn()

    def _warn(self) -> None:
        """Log a warning when the provider starts to change the group by itself in a new way."""
        verdict = self._roster.groups[self.name].verdict
        kind = verdict.kind if verdict.is_repeated else Meddling.NONE
        if kind is not self._warned_of and kind is not Meddling.NONE:
            self._log.warning(
                "provider creates or deletes instances by itself; jobs on deleted ones fail", advice=verdict.advice
            )
        self._warned_of = kind

    async def decrease(self, names: Sequence[str]) -> None:
        """Ask the plugin to delete instances that the state file marks for it. Errors are logged, not raised."""
        members = {name: self._roster.members[name] for name in names if name in self._roster.members}
        ids = {member.id: member for member in members.values()}
        if not ids:
            return
        self._metrics.count_internal_operation("removal")
        try:
            accepted = await self._call(self.plugin.decrease(list(ids)), self._deadlines.change, "Decrease")
        except (TemporaryError, PermanentError) as error:
            self._log.warning("cannot delete instances; will retry", count=len(ids), cause=str(error))
            for member in ids.values():
                member.error = f"it could not be deleted: {error}"
            return
        self._metrics.count_instance_operation("delete", len(accepted))
        for instance_id in ids.keys() - set(accepted):
            ids[instance_id].error = "its group did not accept its deletion"

    async def _begin(self) -> None:
        """Start the plugin. Retries forever, because the cause can be corrected at the provider."""
        state, failures = self._roster.groups[self.name], 0
        while True:
            settings = Settings(connector=self._setup.settings.connector, owner=self._roster.setup.owner)
            call = self.plugin.init(self._setup.config, settings)
            state.starting_at = self._clock.now()
            self.is_settled.clear()
            try:
                state.info = await self._call(call, self._deadlines.init, "Init")
                break
            except (TemporaryError, PermanentError) as error:
                failures += 1
                state.error = str(error)
                pause = AGAIN.delay(failures, jitter=random.random())
                self._log.error(
                    "cannot start the plugin of an instance group; trying again",
                    cause=str(error),
                    again_in_seconds=round(pause, 1),
                )
            finally:
                state.starting_at = None
                self.is_settled.set()
            await self._clock.sleep(pause)
        self.is_begun, state.error = True, ""
        self._roster.apply_limits()
        if state.note:
            self._log.warning(
                "settings of the instance group cannot work as configured; applying them as far as possible",
                note=state.note,
            )

    async def _watch(self) -> None:
        failures = 0
        while True:
            setup = self._roster.setup
            self._look.clear()
            try:
                await self.update()
                await self._ask_stats()
            except (TemporaryError, PermanentError) as error:
                failures += 1
                if failures == 1:
                    self._log.warning(
                        "cannot list the instances of the group; creating none until that works", cause=str(error)
                    )
                self._roster.mark_unreachable(self.name, str(error))
                pause = min(setup.expecting_seconds * 2.0 ** min(failures - 1, 10), setup.update_seconds)
            else:
                failures = 0
                is_expecting = self._roster.is_expecting(self.name)
                pause = setup.expecting_seconds if is_expecting else setup.update_seconds
            self._changed()
            # `look` shortens the pause, but not below a second, or `expecting_seconds` if that is shorter.
            await self._clock.sleep(min(setup.expecting_seconds, pause, 1.0))
            rest = pause - min(setup.expecting_seconds, pause, 1.0)
            await wait_for_any_event(self._clock, self._look, within_seconds=rest, name=f"next update of {self.name}")

    async def _send(self, tasks: asyncio.TaskGroup) -> None:
        """Send queued requests and deletions to the plugin, each call in its own task, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._increases < CALLS and (request := self._roster.requests.next_queued(self.name)):
                self._roster.requests.begin(request)
                self._increases += 1
                tasks.create_task(self._increase(request), name=f"{request.count} more of group {self.name}")
            if self._doomed and self._decreases < CALLS:
                names, self._doomed = sorted(self._doomed), set()
                self._under_way |= set(names)
                self._decreases += 1
                tasks.create_task(self._delete(names), name=f"{len(names)} fewer of group {self.name}")

    async def _increase(self, request: PendingRequest) -> None:
        await self._state_writer.flush()
        requests, count = self._roster.requests, request.count
        if not count:  # the plan gave it up before it was stored
            requests.note_answer(request, 0)
            self._finish_increase()
            return
        self._metrics.count_internal_operation("provision")
        try:
            call = self.plugin.increase(count)
            accepted = await self._call(call, self._deadlines.change, "Increase")
        except (TemporaryError, PermanentError) as error:
            now = self._clock.now()
            requests.mark_doubtful(request, now)
            self._roster.note_failed_creation(
                self.name, str(error), now, cause="refused", count=count, asked_at=request.asked_at
            )
            self._log.warning("cannot create instances; trying again after a pause", count=count, cause=str(error))
        else:
            accepted = min(max(accepted, 0), count)
            requests.note_answer(request, accepted)
            self._metrics.count_instance_operation("create", accepted)
            if accepted < count:
                self._log.warning(
                    "the group accepted fewer instances than requested; requesting more if they are still needed",
                    count=count,
                    accepted=accepted,
                )
            if not accepted:
                text, now = "the group accepted no instance", self._clock.now()
                self._roster.note_failed_creation(
                    self.name, text, now, cause="refused", count=count, asked_at=request.asked_at
                )
            elif accepted < count:
                self._metrics.count_failed_creation(self.name, "refused", count=count - accepted)
        self._finish_increase()
        self._changed()
        self.look()

    def _finish_increase(self) -> None:
        self._increases -= 1
        self._asked.set()
        self._state_writer.mark_changed()

    async def _delete(self, names: Sequence[str]) -> None:
        await self._state_writer.flush()
        await self.decrease(names)
        self._under_way -= set(names)
        self._decreases -= 1
        self._asked.set()
        self.look()

    async def _tags(self, states: Mapping[str, Shown]) -> Mapping[str, TaggedInstance]:
        """Tagged instances by id if `states` has new instances and the plugin can report tags; otherwise {}."""
        info = self._roster.groups[self.name].info
        is_new = any(instance_name(self.name, instance_id) not in self._roster.members for instance_id in states)
        if not is_new or info is None or Capability.RECOVER not in info.capabilities:
            return {}
        assert isinstance(self.plugin, CanRecover)
        tagged = await self._call(self.plugin.recover(), self._deadlines.other, "Recover")
        return {instance.instance: instance for instance in tagged}

    async def _ask_stats(self) -> None:
        """Read the provider's quota, at most once in `update_seconds`. Logs a failure and keeps the last quota."""
        state, now = self._roster.groups[self.name], self._clock.now()
        can = state.info is not None and Capability.STATS in state.info.capabilities
        if not can or now - self._stats_at < self._roster.setup.update_seconds:
            return
        assert isinstance(self.plugin, HasStats)
        self._stats_at = now
        try:
            state.quota = (await self._call(self.plugin.stats(), self._deadlines.other, "Stats")).quota
        except (TemporaryError, PermanentError) as error:
            self._log.warning("cannot read the provider's instance quota; using the last known value", cause=str(error))
        else:
            self._roster.apply_limits()

    async def _call(self, call: Coroutine[Any, Any, T], seconds: float, what: str) -> T:
        return await within(self._clock, seconds, call, what=f"{what} of group {self.name}".rstrip())
