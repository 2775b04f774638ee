"""The share of the demand that each manager takes."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.waiting.demand import compute_demand
from remuda.cell.values import RunnerManager
from remuda.model.job import RunnerId
from remuda.model.runner import CapabilityKey
from remuda.taskscaler.core.plan import plan
from remuda.taskscaler.core.policy import Policy
from remuda.taskscaler.core.share import own_demand
from remuda.taskscaler.core.values import Fleet, Group, KeyDemand, Limits, Soon
from remuda.testing.builders import NOW, a_runner
from remuda.wire import demand as wire

LINUX = CapabilityKey(tags=frozenset({"linux"}), project_id=1)


@given(st.integers(0, 500), st.tuples(*[st.integers(1, 200)] * 3))
def test_three_managers_on_one_key(ready: int, capacities: tuple[int, int, int]) -> None:
    """Together they create exactly what is needed, each in proportion to its capacity."""
    managers = [
        RunnerManager(runner_id=RunnerId(1), system_id=f"s_{number}", contacted_at=NOW, capacity=capacity)
        for number, capacity in enumerate(capacities)
    ]
    runner = a_runner(id=RunnerId(1), tags=("linux",))
    demand = wire.Demand(
        keys=compute_demand(ready={LINUX: ready}, running=(), coming={}, runners=(runner,), managers=managers, now=NOW)
    )
    fleet = Fleet(groups=(Group(limits=Limits(throttle_limit=-1.0, max_instances=10_000)),))
    shares = [own_demand(demand, runner_id=1, system_id=manager.system_id, waiting={}) for manager in managers]
    created = [plan(fleet, share, Policy(), NOW).creation_count for share in shares]
    assert sum(created) == ready
    for jobs, capacity in zip(created, capacities, strict=True):
        assert abs(jobs - ready * capacity / sum(capacities)) < 2


def server_demand() -> wire.Demand:
    def share(system_id: str, ready: int) -> wire.Share:
        created = wire.Ahead(next=4, later=2, held=9)
        return wire.Share(runner_id=7, system_id=system_id, running=3, ready=ready, created=created)

    key = wire.KeyDemand(
        tags=("docker", "linux"),
        protected=True,
        pools=(("organization", 1),),
        running=9,
        ready=6,
        created=wire.Ahead(next=12, later=6, held=27),
        unserved=0,
        shares=(share("s_1", 1), share("s_2", 2), share("s_3", 3)),
    )
    return wire.Demand(keys=(key,))


def test_the_managers_own_share_is_read_from_the_cells_demand() -> None:
    name = "docker,linux protected organization:1"
    demand = own_demand(server_demand(), runner_id=7, system_id="s_2", waiting={name: 5, "other": 1}, job_seconds=100.0)
    soon = (Soon(jobs=4, ready_in_seconds=50.0, chance=0.8), Soon(jobs=2, ready_in_seconds=150.0, chance=0.8))
    assert demand.keys == (
        KeyDemand(key=name, running=3, ending=3, ready=2, waiting=5, soon=soon),
        KeyDemand(key="other", waiting=1),
    )
    assert (
        sum(own_demand(server_demand(), runner_id=7, system_id=f"s_{n}", waiting={}).keys[0].ready for n in (1, 2, 3))
        == 6
    )


def test_from_a_plain_gitlab_only_waiting_jobs_count() -> None:
    assert own_demand(wire.Demand(), runner_id=7, system_id="s_1", waiting={"": 3, "gone": 0}).keys == (
        KeyDemand(key="", waiting=3),
    )
