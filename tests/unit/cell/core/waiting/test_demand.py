"""The demand for runners: counts of ready, running and coming jobs, and their shares for managers."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.core.waiting.demand import HELD, LATER, NEXT, ManagerId, compute_demand, count_coming_jobs, shares
from remuda.cell.values import Job, Runner, RunnerManager
from remuda.cell.values.people import PRESENT_SECONDS
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.runner import CapabilityKey, RunnerType
from remuda.testing.builders import NOW, a_job, a_runner
from remuda.wire.demand import Ahead, KeyDemand

LINUX = CapabilityKey(tags=frozenset({"linux"}), project_id=1)


def a_manager(runner: int = 1, system_id: str = "s_1", *, ago: float = 5, capacity: int | None = None) -> RunnerManager:
    return RunnerManager(runner_id=RunnerId(runner), system_id=system_id, contacted_at=NOW - ago, capacity=capacity)


def linux(number: int = 1, **more: Any) -> Runner:
    return a_runner(id=RunnerId(number), tags=("linux",), **more)


def demand(**changes: Any) -> tuple[KeyDemand, ...]:
    values: dict[str, Any] = {"ready": {}, "running": (), "coming": {}, "runners": (), "managers": (), "now": NOW}
    return compute_demand(**(values | changes))


class TestComingJobs:
    def classify(self, *jobs: Job) -> dict[str, str]:
        names = {job.key(): job.name for job in jobs}
        assert len(names) == len(jobs)
        return {names[key]: kind for key, kind in count_coming_jobs(jobs)}

    def job(self, name: str, stage: int = 1, **more: Any) -> Job:
        values: dict[str, Any] = {"tags": (name,), "stage_index": stage, "by_stage": True, "id": JobId(stage)}
        return a_job(name, **(values | more))

    def test_by_stage(self) -> None:
        jobs = (self.job("test", 1), self.job("deploy", 2), self.job("clean", 3))
        assert self.classify(*jobs) == {"test": NEXT, "deploy": LATER, "clean": LATER}

    def test_by_needs(self) -> None:
        jobs = (
            self.job("test", 1),
            self.job("fast", 2, by_stage=False, waits_for=("over",)),
            self.job("slow", 2, by_stage=False, waits_for=("over", "test")),
        )
        assert self.classify(*jobs) == {"test": NEXT, "fast": NEXT, "slow": LATER}

    def test_behind_a_manual_job(self) -> None:
        jobs = (
            self.job("ask", 1, state=JobState.MANUAL),
            self.job("after", 2),
            self.job("needs", 2, by_stage=False, waits_for=("ask",)),
        )
        assert self.classify(*jobs) == {"ask": HELD, "after": HELD, "needs": HELD}

    def test_an_optional_manual_job_delays_no_other(self) -> None:
        jobs = (self.job("ask", 1, state=JobState.MANUAL, allow_failure=True), self.job("after", 2))
        assert self.classify(*jobs) == {"ask": HELD, "after": NEXT}

    def test_trigger_jobs_are_no_demand_but_delay_others(self) -> None:
        jobs = (self.job("go", 1, is_trigger=True), self.job("after", 2))
        assert self.classify(*jobs) == {"after": LATER}

    def test_pipelines_are_independent(self) -> None:
        jobs = (self.job("one", 1), self.job("two", 2, pipeline_id=PipelineId(2)))
        assert self.classify(*jobs) == {"one": NEXT, "two": NEXT}


class TestKeys:
    def test_three_managers_share_one_demand(self) -> None:
        [key] = demand(
            ready={LINUX: 7},
            coming={(LINUX, NEXT): 4, (LINUX, LATER): 2, (LINUX, HELD): 1},
            runners=[linux(1), linux(2)],
            managers=[a_manager(1, "s_a"), a_manager(1, "s_b"), a_manager(2, "s_c")],
        )
        assert (key.tags, key.ready, key.created) == (("linux",), 7, Ahead(next=4, later=2, held=1))
        assert sorted(share.ready for share in key.shares) == [2, 2, 3]
        assert sum(share.created.next for share in key.shares) == 4
        assert key.unserved == 0

    def test_projects_count_together_unless_one_has_its_own_runners(self) -> None:
        ready = {CapabilityKey(project_id=number): 1 for number in (1, 2, 3)}
        instance_runner = a_runner(id=RunnerId(1))
        assert [key.ready for key in demand(ready=ready, runners=[instance_runner])] == [3]
        own = a_runner(id=RunnerId(2), type=RunnerType.PROJECT, project_ids=(ProjectId(3),))
        keys = demand(ready=ready, runners=[instance_runner, own], managers=[a_manager(1), a_manager(2)])
        assert [(key.pools, key.ready, len(key.shares)) for key in keys] == [
            ((("cell", 0),), 2, 1),
            ((("cell", 0), ("project", 3)), 1, 2),
        ]

    def test_organizations_count_together_unless_one_has_its_own_runners(self) -> None:
        ready = {CapabilityKey(organization_id=number): number for number in (1, 2, 3)}
        instance_runner = a_runner(id=RunnerId(1))
        own = a_runner(id=RunnerId(2), organization_ids=(3,))
        keys = demand(ready=ready, runners=[instance_runner, own], managers=[a_manager(1), a_manager(2)])
        assert [(key.pools, key.ready, len(key.shares)) for key in keys] == [
            ((("cell", 0),), 3, 1),
            ((("cell", 0), ("organization", 3)), 3, 2),
        ]

    def test_running_jobs_count_for_their_manager(self) -> None:
        job = a_job(tags=("linux",), state=JobState.RUNNING, runner_id=RunnerId(1), system_id="s_gone")
        [key] = demand(running=[job], ready={LINUX: 1}, runners=[linux()], managers=[a_manager()])
        assert [(share.system_id, share.running, share.ready) for share in key.shares] == [
            ("s_1", 0, 1),
            ("s_gone", 1, 0),
        ]

    def test_absent_managers_and_paused_runners_get_no_share(self) -> None:
        absent_manager = a_manager(1, "s_gone", ago=PRESENT_SECONDS)
        [key] = demand(ready={LINUX: 3}, runners=[linux()], managers=[absent_manager, a_manager(1, "s_here")])
        assert [(share.system_id, share.ready) for share in key.shares] == [("s_here", 3)]
        [key] = demand(ready={LINUX: 3}, runners=[linux(paused=True)], managers=[a_manager()])
        assert (key.shares, key.unserved) == ((), 3)

    def test_a_busy_manager_counts_as_present_without_polls(self) -> None:
        job = a_job(tags=("linux",), state=JobState.RUNNING, runner_id=RunnerId(1), system_id="s_1")
        [key] = demand(running=[job], ready={LINUX: 3}, runners=[linux()], managers=[a_manager(ago=9999)])
        assert [(share.running, share.ready) for share in key.shares] == [(1, 3)]

    def test_shares_are_weighted_by_capacity(self) -> None:
        managers = [a_manager(1, "s_a", capacity=30), a_manager(1, "s_b", capacity=10), a_manager(1, "s_c")]
        [key] = demand(ready={LINUX: 60}, runners=[linux()], managers=managers)
        assert [share.ready for share in key.shares] == [30, 10, 20], "an unknown capacity counts as the mean"

    def test_only_fitting_runners_get_a_share(self) -> None:
        [key] = demand(
            ready={LINUX: 2}, runners=[linux(1), a_runner(id=RunnerId(2))], managers=[a_manager(1), a_manager(2)]
        )
        assert [share.runner_id for share in key.shares] == [1]


WEIGHTS = st.dictionaries(st.tuples(st.integers(1, 4), st.sampled_from("abc")), st.integers(0, 50), max_size=8)


def split(total: int, weights: dict[ManagerId, int]) -> dict[ManagerId, int]:
    return shares(total, weights, "seed")


class TestShares:
    @given(total=st.integers(0, 500), weights=WEIGHTS)
    def test_shares_add_up_to_the_total(self, total: int, weights: dict[ManagerId, int]) -> None:
        assert sum(split(total, weights).values()) == (total if any(weights.values()) else 0)

    @given(total=st.integers(0, 500), weights=WEIGHTS)
    def test_shares_do_not_depend_on_the_order(self, total: int, weights: dict[ManagerId, int]) -> None:
        assert split(total, weights) == split(total, dict(reversed(weights.items())))

    @given(total=st.integers(0, 500), weights=WEIGHTS)
    def test_no_share_shrinks_when_the_total_grows(self, total: int, weights: dict[ManagerId, int]) -> None:
        before, after = split(total, weights), split(total + 1, weights)
        assert all(after[manager] >= share for manager, share in before.items())

    @given(total=st.integers(0, 500), weights=WEIGHTS)
    def test_no_share_is_below_its_rounded_down_proportion(self, total: int, weights: dict[ManagerId, int]) -> None:
        total_weight = sum(weights.values())
        for manager, share in split(total, weights).items():
            assert share >= total * weights[manager] // total_weight

    def test_shares_of_equal_weights_differ_by_one_at_most(self) -> None:
        parts = split(1000, {(number, "s"): 1 for number in range(7)})
        assert max(parts.values()) - min(parts.values()) == 1

    def test_the_seed_decides_who_gets_the_remainder(self) -> None:
        weights = {(number, "s"): 1 for number in range(3)}
        first = Counter(max(shares(1, weights, str(seed)).items(), key=lambda item: item[1])[0] for seed in range(60))
        assert len(first) == 3


@given(
    ready=st.dictionaries(
        st.builds(
            CapabilityKey,
            tags=st.frozensets(st.sampled_from(["linux", "gpu"])),
            protected=st.booleans(),
            project_id=st.integers(1, 3),
        ),
        st.integers(1, 9),
    ),
    capacities=st.lists(st.none() | st.integers(0, 9), max_size=5),
)
def test_all_ready_jobs_are_shared_or_unserved(ready: dict[CapabilityKey, int], capacities: list[int | None]) -> None:
    runners = [linux(number) for number in range(1, 4)]
    managers = [
        a_manager(1 + number % 3, f"s_{number}", capacity=capacity) for number, capacity in enumerate(capacities)
    ]
    keys = demand(ready=ready, runners=runners, managers=managers)
    assert sum(key.ready for key in keys) == sum(ready.values())
    for key in keys:
        assert sum(share.ready for share in key.shares) + key.unserved == key.ready
    assert keys == demand(ready=ready, runners=runners[::-1], managers=managers[::-1])
