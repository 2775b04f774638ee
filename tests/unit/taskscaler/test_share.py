"""Each manager's part of the demand."""

from hypothesis import given
from hypothesis import strategies as st

from remuda.taskscaler.share import own_demand, shares
from remuda.taskscaler.values import KeyDemand, Soon
from remuda.wire import demand as wire


def test_three_managers_on_one_key() -> None:
    assert shares(10, {"a": 50, "b": 30, "c": 20}) == {"a": 5, "b": 3, "c": 2}
    # Due are 2.5, 1.5 and 1.0: one of the halves is rounded up, the same one for everybody who works it out.
    assert sorted(shares(5, {"a": 50, "b": 30, "c": 20}).values()) in ([1, 1, 3], [1, 2, 2])
    assert shares(7, {"a": 1, "b": 0, "c": 0}) == {"a": 7, "b": 0, "c": 0}


def test_without_capacities_all_get_the_same() -> None:
    assert shares(6, {"a": 0, "b": 0, "c": 0}) == {"a": 2, "b": 2, "c": 2}
    assert shares(6, {}) == {}


def test_the_odd_job_is_not_always_the_same_managers() -> None:
    given = [shares(1, {"a": 1, "b": 1, "c": 1}, key=f"{key}") for key in range(50)]
    first = {name for one in given for name, jobs in one.items() if jobs}
    assert first == {"a", "b", "c"}


@given(st.integers(0, 10**6), st.dictionaries(st.text(max_size=3), st.integers(0, 5000), min_size=1, max_size=8))
def test_shares_sum_to_the_whole_and_are_near_what_is_due(total: int, capacities: dict[str, int]) -> None:
    found = shares(total, capacities)
    assert sum(found.values()) == total
    assert found == shares(total, dict(reversed(capacities.items())))
    whole = sum(capacities.values())
    for name, jobs in found.items():
        if whole:
            assert abs(jobs - total * capacities[name] / whole) < 1


def told() -> wire.Demand:
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


def test_a_cells_answer_is_read_as_ones_own_share() -> None:
    name = "docker,linux protected organization:1"
    found = own_demand(told(), runner_id=7, system_id="s_2", waiting={name: 5, "other": 1}, job_seconds=100.0)
    soon = (Soon(jobs=4, ready_in_seconds=50.0, chance=0.8), Soon(jobs=2, ready_in_seconds=150.0, chance=0.8))
    assert found.keys == (
        KeyDemand(key=name, running=3, ending=3, ready=2, waiting=5, soon=soon),
        KeyDemand(key="other", waiting=1),
    )
    assert sum(own_demand(told(), runner_id=7, system_id=f"s_{n}", waiting={}).keys[0].ready for n in (1, 2, 3)) == 6


def test_from_a_plain_gitlab_only_waiting_jobs_count() -> None:
    assert own_demand(wire.Demand(), runner_id=7, system_id="s_1", waiting={"": 3, "gone": 0}).keys == (
        KeyDemand(key="", waiting=3),
    )
