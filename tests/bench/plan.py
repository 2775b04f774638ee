"""Measures a scaling plan for 10,000 instances and the demand of 100,000 jobs in 1,000 capability keys.

The reference is a loop over the same instances and keys that only adds up numbers, which any plan must do. No time is
asserted; the aim is 50 ms. `python -m tests.bench.plan`.
"""

import random
import statistics
import time
from collections.abc import Callable

from tests.bench.http_calls import Show, print_figure

from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.values import Demand, Fleet, Group, Instance, InstanceState, KeyDemand, Limits, Soon

INSTANCES = 10_000
KEYS = 1_000
JOBS_PER_KEY = 100
ROUNDS = 21
NOW = 1_750_000_000.0
LIMITS = Limits(capacity_per_instance=4, max_use_count=50, max_instances=40_000)
GROUPS = (Group(name="spot", limits=LIMITS), Group(name="dear", limits=LIMITS))


def a_fleet(chance: random.Random, busy_share: float) -> Fleet:
    """A fleet of which most instances are ready; some are created or deleted."""
    instances = []
    for number in range(INSTANCES):
        is_busy = chance.random() < busy_share
        state = chance.choice((InstanceState.CREATING, InstanceState.DELETING)) if number % 20 == 0 else "ready"
        instances.append(
            Instance(
                id=f"i-{number:05}",
                group=GROUPS[number % 2].name,
                state=InstanceState(state),
                since=NOW - chance.randrange(50),
                slots_used=chance.randint(1, 4) if is_busy and state == "ready" else 0,
                uses=chance.randrange(40),
                created_at=NOW - chance.randrange(10_000),
                idle_since=None if is_busy else NOW - chance.randrange(1_000),
                warm=frozenset({f"key-{chance.randrange(KEYS)}"}),
            )
        )
    return Fleet(groups=GROUPS, instances=tuple(instances))


def a_demand(chance: random.Random, jobs: int) -> Demand:
    """So many jobs for each key: running, ready, waiting, or expected soon."""
    keys = []
    for number in range(KEYS):
        parts = sorted(chance.randrange(jobs + 1) for _ in range(3))
        running, ready, later = parts[0], parts[1] - parts[0], parts[2] - parts[1]
        soon = (Soon(jobs=later, ready_in_seconds=60.0, chance=0.8),)
        keys.append(KeyDemand(key=f"key-{number}", running=running, ready=ready, waiting=jobs - parts[2], soon=soon))
    return Demand(keys=tuple(keys))


def add_up(fleet: Fleet, demand: Demand) -> float:
    """The reference loop."""
    total = 0.0
    for instance in fleet.instances:
        if instance.state is InstanceState.READY:
            total += instance.slots_used
    for key in demand.keys:
        total += key.running + key.ready + key.waiting + sum(expected.jobs * expected.chance for expected in key.soon)
    return total


def measure(work: Callable[[], object]) -> float:
    """Median processor time of a call in seconds. A plan never waits, so that is its duration on an idle machine."""
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return statistics.median(took)


def plans(show: Show) -> None:
    """Print the figures."""
    busy = a_fleet(random.Random(1), 0.8)
    idle = a_fleet(random.Random(2), 0.1)
    much, none = a_demand(random.Random(3), JOBS_PER_KEY), Demand()
    policy = Policy(idle_count=100, idle_seconds=300.0, scale_factor=0.2)
    reference = measure(lambda: add_up(busy, much))
    show(f"adding up {INSTANCES:,} instances, {KEYS:,} keys", f"{reference * 1000:.1f} ms", "reference")
    for name, fleet, demand in (
        (f"plan, {KEYS * JOBS_PER_KEY:,} jobs want more", busy, much),
        ("plan, most instances go", idle, none),
    ):
        result = plan(fleet, demand, policy, NOW)
        took = measure(lambda fleet=fleet, demand=demand: plan(fleet, demand, policy, NOW))  # type: ignore[misc]
        counts = f"creates {result.creation_count:,}, removes {len(result.remove):,}"
        note = f"{took / reference:.1f} of the reference; {counts}"
        show(name, f"{took * 1000:.1f} ms", note)


if __name__ == "__main__":
    plans(print_figure)
