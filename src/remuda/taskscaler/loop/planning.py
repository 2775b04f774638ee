"""Makes plans and applies them to the roster. The tasks of the groups (`group_watch`) then call the plugins. A plan is
applied without an `await`, so no job gets a slot of an instance that is to be removed."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from remuda.lib.clock import Clock
from remuda.taskscaler.core.decisions import Because, Plan, Reason
from remuda.taskscaler.core.explain import describe
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import policy_for_draining, resolve
from remuda.taskscaler.core.rebalancing import Seen, Sighting
from remuda.taskscaler.fleet.gauges import fleet_of, gauges_of
from remuda.taskscaler.fleet.roster import Gone, Roster
from remuda.taskscaler.fleet.setup import ScalerMetrics
from remuda.taskscaler.fleet.status import Decision
from remuda.taskscaler.loop.demand import DemandTracker
from remuda.taskscaler.loop.group_watch import GroupWatch
from remuda.telemetry.logs import logger

KEPT = 100
"""Number of decisions in the status."""
LOGGED = 10
"""Removals of one plan with a log line of their own; of the rest only the number is logged."""


class Planner:
    """Makes the plans of a fleet. `ended` is called with instances that do not exist any more."""

    def __init__(
        self,
        roster: Roster,
        demand_tracker: DemandTracker,
        watches: Mapping[str, GroupWatch],
        *,
        clock: Clock,
        metrics: ScalerMetrics,
        ended: Callable[[Sequence[Gone]], None],
    ) -> None:
        self._roster = roster
        self._demand_tracker = demand_tracker
        self._watches = watches
        self._clock = clock
        self._metrics = metrics
        self._ended = ended
        self._log = logger("scaler").bind(fleet=roster.setup.name)
        self.decisions: deque[Decision] = deque(maxlen=KEPT)
        self.last: Plan | None = None
        self.is_draining = False
        """No more jobs are requested, so idle instances go after the policy's idle time."""
        self.is_ending = False
        """No job will ever be requested again."""
        self.granted = 0
        """Slots that were assigned since the last plan; they cannot be reserved any more."""

    def plan(self, open_requests: int) -> Plan:
        """Make a plan, apply it, and wake the tasks that call the plugins. `open_requests`: unanswered job requests."""
        now = self._clock.now()
        roster = self._roster
        local = datetime.fromtimestamp(now).astimezone().tzinfo
        assert local is not None
        policy = resolve(roster.setup.rules, now, local=local)
        if self.is_draining:
            policy = policy_for_draining(policy, is_ending=self.is_ending)
        fleet = fleet_of(roster, now, reserved=open_requests + len(roster.slots.waiters))
        new_plan = plan(fleet, self._demand_tracker.demand(), policy, now)
        gone = self._forget(new_plan, now)
        self._remove(new_plan, now)
        for drain in new_plan.drain:
            roster.drain(drain.id, now)
            self._decide("drain", drain.group, drain.because, instance=drain.id)
        for creation in new_plan.create:
            roster.requests.add(creation.group, creation.count, now)
            for because in creation.because[:1]:
                self._decide("create", creation.group, because, count=creation.count, all_of=creation.because)
            self._watches[creation.group].act()
        for name, bucket in new_plan.buckets.items():
            roster.groups[name].bucket = bucket
        for name in {creation.group for creation in new_plan.create}:
            roster.mark_group_changed(name)
        for hindrance in new_plan.hindered:
            self._metrics.count_decision("hindered", hindrance.because.reason, hindrance.count)
        for operation, is_done in (("up", new_plan.create), ("down", new_plan.remove)):
            if is_done:
                self._metrics.count_scale_operation(operation)
        self.last, self.granted = new_plan, 0
        # Last, when all removals are marked: jobs of gone instances get other slots, but not of instances to remove.
        self._ended(gone)
        starts = {name: watch.starts for name, watch in self._watches.items()}
        self._metrics.set_gauges(gauges_of(roster, new_plan, open_requests, at=self._clock.monotonic(), starts=starts))
        return new_plan

    def _remove(self, new_plan: Plan, now: float) -> None:
        for removal in new_plan.remove:
            if removal.because.reason is Reason.STUCK:
                asked_at = self._roster.members[removal.id].asked_at
                text = f"{removal.id} {describe(removal.because)}"
                self._roster.note_failed_creation(removal.group, text, now, cause="stuck", asked_at=asked_at)
            self._roster.remove(removal.id, now)
            self._watches[removal.group].delete(removal.id)
        for removal in new_plan.remove[:LOGGED]:
            self._decide("remove", removal.group, removal.because, instance=removal.id)
        for removal in new_plan.remove[LOGGED:]:
            self._metrics.count_decision("remove", removal.because.reason)
        if len(new_plan.remove) > LOGGED:
            self._log.info("removing further instances, not listed in the log", count=len(new_plan.remove) - LOGGED)

    def _forget(self, new_plan: Plan, now: float) -> list[Gone]:
        gone = []
        for forgetting in new_plan.forget:
            suspicion = ""
            if forgetting.id:
                member = self._roster.members[forgetting.id]
                if forgetting.because.reason is Reason.LOST and not member.is_prepared:
                    text = f"{forgetting.id} was lost before it was ready"
                    self._roster.note_failed_creation(
                        forgetting.group, text, now, cause="lost", asked_at=member.asked_at
                    )
                gone.append(self._roster.lose(forgetting.id, now))
                suspicion = gone[-1].why
            else:
                self._roster.requests.forget(forgetting.group, forgetting.asked_at, forgetting.count)
                if forgetting.because.reason is Reason.UNDELIVERED:
                    why, asked_at = describe(forgetting.because), forgetting.asked_at
                    self._roster.note_failed_creation(
                        forgetting.group, why, now, cause="undelivered", count=forgetting.count, asked_at=asked_at
                    )
                    given_up = [Sighting(what=Seen.GIVEN_UP, at=now)] * forgetting.count
                    self._roster.groups[forgetting.group].note_sightings(now, *given_up)
            self._decide(
                "forget",
                forgetting.group,
                forgetting.because,
                instance=forgetting.id,
                count=forgetting.count,
                suspicion=suspicion,
            )
        return gone

    def _decide(
        self,
        action: str,
        group: str,
        because: Because,
        *,
        instance: str = "",
        count: int = 1,
        all_of: Sequence[Because] = (),
        suspicion: str = "",
    ) -> None:
        text = ", ".join(describe(reason) for reason in all_of or (because,)) + (f": {suspicion}" if suspicion else "")
        self.decisions.append(
            Decision(
                at=self._clock.now(),
                action=action,
                group=group,
                instance=instance,
                count=count,
                reason=because.reason.value,
                text=text,
            )
        )
        self._metrics.count_decision(action, because.reason, count)
        is_bad = because.reason in (Reason.LOST, Reason.UNDELIVERED, Reason.STUCK, Reason.FAILED, Reason.UNHEALTHY)
        values = {"group": group, "reason": because.reason.value, "why": text, "count": count}
        if instance:
            values["instance"] = instance
        (self._log.warning if is_bad else self._log.info)(_DONE[action], **values)


_DONE = {
    "create": "creating instances",
    "remove": "removing an instance",
    "drain": "draining an instance; it gets no more jobs",
    "forget": "instances are gone, were never delivered or are not requested any more; not counting them",
}
