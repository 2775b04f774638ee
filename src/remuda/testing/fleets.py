"""Fleets (machines created on demand) for autoscaler tests: builders, the effect of a plan (machines to create and
remove), and a simulated world that executes plans.

The world has virtual time, the real `plan` and `Slots`, and a provider that is slow to create and delete instances."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from remuda.taskscaler.core.decisions import Plan, Reason
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.slots import Slots
from remuda.taskscaler.core.values import Demand, Fleet, Group, Instance, InstanceState, KeyDemand, Limits, Request

START = 1_750_000_000.0


def a_fleet(*instances: Instance, requests: Sequence[Request] = (), reserved: int = 0, **limits: Any) -> Fleet:
    """Build a fleet of one group. `requests`: those whose instances have not appeared yet; `reserved`: slots (room for
    one job) reserved for waiting jobs and open job requests; `limits`: fields of `Limits`."""
    group = Group(limits=Limits(**limits))
    return Fleet(groups=(group,), instances=instances, requests=tuple(requests), reserved=reserved)


def a_demand(**numbers: Any) -> Demand:
    """Build a demand of the single key "linux". `numbers`: of running, ready… jobs: fields of `KeyDemand`."""
    return Demand(keys=(KeyDemand(key="linux", **numbers),))


def carry_out(fleet: Fleet, made: Plan, now: float) -> Fleet:
    """The fleet after the provider has accepted the plan `made`: instances are requested, but none has appeared."""
    removed = {entry.id for entry in made.remove}
    drained = {entry.id for entry in made.drain}
    gone = {entry.id for entry in made.forget if entry.id}
    forgotten = Counter[tuple[str, float]]()
    for entry in made.forget:
        forgotten[entry.group, entry.asked_at] += 0 if entry.id else entry.count
    requests = []
    for request in fleet.requests:
        taken = min(forgotten[request.group, request.asked_at], request.count)
        forgotten[request.group, request.asked_at] -= taken
        if request.count > taken:
            requests.append(replace(request, count=request.count - taken))
    instances = []
    for instance in fleet.instances:
        if instance.id in removed:
            instance = replace(instance, state=InstanceState.DELETING, since=now)
        elif instance.id in drained:
            instance = replace(instance, state=InstanceState.DRAINING, since=now)
        if instance.id not in gone:
            instances.append(instance)
    requests += [Request(group=entry.group, count=entry.count, asked_at=now) for entry in made.create]
    groups = tuple(replace(group, bucket=made.buckets.get(group.name)) for group in fleet.groups)
    return replace(fleet, groups=groups, instances=tuple(instances), requests=tuple(requests))


class World:
    """A simulated fleet with jobs and a provider; `run` makes and executes a plan every `tick` seconds."""

    def __init__(
        self, *groups: Group, policy: Policy, boot_seconds: float = 30.0, delete_seconds: float = 20.0
    ) -> None:
        self.groups = groups or (Group(),)
        self.policy = policy
        self.boot_seconds = boot_seconds
        self.delete_seconds = delete_seconds
        self.show_seconds = 2.0
        self.now = START
        self.slots = Slots({group.name: group.limits for group in self.groups})
        self.requests: list[Request] = []
        self.ends: dict[str, float] = {}
        self.began: dict[str, float] = {}
        self.created = 0
        self.removed = 0
        self.reasons = Counter[Reason]()
        self.last: Plan | None = None
        self.most = 0
        self.ready_jobs: Callable[[], int] = lambda: 0
        """Returns the number of jobs that wait at the server, for servers that report it."""
        self.open_requests = 0
        """Number of unanswered requests for jobs."""
        self._names = 0

    @property
    def instances(self) -> tuple[Instance, ...]:
        return self.slots.instances

    def count(self, *states: InstanceState) -> int:
        return sum(not states or instance.state in states for instance in self.instances)

    def submit(self, jobs: int, seconds: float) -> list[str]:
        """Add jobs that each wait for a slot on an instance and then run for `seconds`. Returns their names."""
        names = [self._name("job") for _ in range(jobs)]
        for name in names:
            self.slots.acquire(name, now=self.now)
            self.ends[name] = seconds
        return names

    def fleet(self) -> Fleet:
        return Fleet(
            groups=self.groups,
            instances=self.instances,
            requests=tuple(self.requests),
            reserved=self.open_requests + len(self.slots.waiters),
        )

    def run(self, seconds: int, *, tick: int = 1) -> None:
        for _ in range(0, seconds, tick):
            self.now += tick
            self._happen()
            self._act()

    def _happen(self) -> None:
        for request in list(self.requests):
            if self.now - request.asked_at >= self.show_seconds:
                self.requests.remove(request)
                for _ in range(request.count):
                    self._see(Instance(id=self._name("i"), group=request.group, created_at=self.now))
        for instance in self.instances:
            lasted = self.now - instance.since
            if instance.state is InstanceState.CREATING and lasted >= self.boot_seconds:
                self.slots.update(replace(instance, state=InstanceState.READY, since=self.now))
            elif instance.state is InstanceState.DELETING and lasted >= self.delete_seconds:
                assert not self.slots.lose(instance.id), "an instance with jobs was removed"
        for holder, began in list(self.began.items()):
            if self.now - began >= self.ends[holder]:
                self.slots.release(holder, now=self.now)
                del self.began[holder]

    def _see(self, instance: Instance) -> None:
        self.slots.update(replace(instance, state=InstanceState.CREATING, since=self.now))

    def _act(self) -> None:
        for grant in self.slots.grants():
            self.began[grant.holder] = self.now
        demand = a_demand(waiting=len(self.slots.waiters), ready=self.ready_jobs())
        made = self.last = plan(self.fleet(), demand, self.policy, self.now)
        after = carry_out(self.fleet(), made, self.now)
        self.groups = after.groups
        self.requests = list(after.requests)
        remaining = {instance.id for instance in after.instances}
        for instance in self.instances:
            if instance.id not in remaining:
                self.slots.lose(instance.id)
        for instance in after.instances:
            self.slots.update(instance)
        self.created += made.creation_count
        self.removed += sum(entry.because.reason is not Reason.RETRIED for entry in made.remove)
        self.reasons.update(entry.because.reason for entry in made.remove)
        self.most = max(self.most, len(self.instances) + sum(request.count for request in self.requests))

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"
