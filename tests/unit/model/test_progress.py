from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.model.job import FINAL, JobEvent, JobState, after
from remuda.model.progress import When, next_moves, pipeline_state, retries_left, waits_for_names


@dataclass(frozen=True, kw_only=True)
class Job:
    name: str
    state: JobState = JobState.CREATED
    when: When = When.ON_SUCCESS
    allow_failure: bool = False
    stage_index: int = 0
    by_stage: bool = False
    waits_for: tuple[str, ...] = ()


def job(
    name: str,
    state: str = "created",
    *needs: str,
    stage: int | None = None,
    when: str = "on_success",
    optional: bool = False,
) -> Job:
    """A job of a stage, or one with needs (perhaps none)."""
    return Job(
        name=name,
        state=JobState(state),
        when=When(when),
        allow_failure=optional,
        stage_index=stage or 0,
        by_stage=stage is not None,
        waits_for=needs,
    )


def moves(*jobs: Job) -> dict[str, str]:
    return {move.name: move.event.value for move in next_moves(jobs)}


class TestStages:
    def test_the_first_stage_starts_at_once(self) -> None:
        assert moves(job("a", stage=0), job("b", stage=0), job("c", stage=1)) == {"a": "enqueue", "b": "enqueue"}

    def test_a_stage_waits_for_all_of_those_before(self) -> None:
        jobs = (job("a", "success", stage=0), job("b", "running", stage=1), job("c", stage=2))
        assert moves(*jobs) == {}
        assert moves(jobs[0], job("b", "success", stage=1), jobs[2]) == {"c": "enqueue"}

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ("success", "enqueue skip enqueue ask schedule"),
            ("failed", "skip enqueue enqueue skip skip"),
            ("canceled", "skip skip skip skip skip"),
            ("skipped", "enqueue skip enqueue ask schedule"),
            *((state, "") for state in ("running", "leased", "pending", "manual", "canceling")),
            *((state, "") for state in ("waiting_for_resource", "scheduled", "preparing")),
        ],
    )
    def test_when(self, state: str, expected: str) -> None:
        whens = ("on_success", "on_failure", "always", "manual", "delayed")
        found = moves(job("a", state, stage=0), *(job(when, stage=1, when=when) for when in whens))
        assert list(found.values()) == expected.split()

    @pytest.mark.parametrize("state", ["failed", "canceled", "manual"])
    def test_a_job_that_may_fail_does_not_stop_the_others(self, state: str) -> None:
        first = job("a", state, stage=0, optional=True)
        assert moves(first, job("b", stage=1), job("c", stage=1, when="on_failure")) == {"b": "enqueue", "c": "skip"}

    def test_a_failure_counts_more_than_a_cancellation(self) -> None:
        ended = (job("a", "failed", stage=0), job("b", "canceled", stage=0), job("c", "success", stage=0))
        behind = (job("clean up", stage=1, when="always"), job("notify", stage=1, when="on_failure"))
        assert moves(*ended, *behind) == {"clean up": "enqueue", "notify": "enqueue"}

    def test_nothing_has_failed_before_the_first_stage(self) -> None:
        assert moves(job("a", stage=0, when="on_failure")) == {"a": "skip"}

    def test_skips_run_through_the_pipeline(self) -> None:
        jobs = (
            job("a", "failed", stage=0),
            job("b", stage=1),
            job("c", stage=2),
            job("clean up", stage=3, when="always"),
            job("notify", stage=3, when="on_failure"),
        )
        assert moves(*jobs) == {"b": "skip", "c": "skip", "clean up": "enqueue", "notify": "enqueue"}

    def test_an_optional_manual_job_lets_the_next_stage_go_a_blocking_one_does_not(self) -> None:
        optional = (job("gate", stage=0, when="manual", optional=True), job("next", stage=1))
        assert moves(*optional) == {"gate": "ask", "next": "enqueue"}
        assert moves(job("gate", stage=0, when="manual"), job("next", stage=1)) == {"gate": "ask"}


class TestNeeds:
    def test_they_do_not_wait_for_others(self) -> None:
        assert moves(job("a", "success"), job("slow", "running"), job("c", "created", "a")) == {"c": "enqueue"}

    def test_without_any_a_job_of_a_late_stage_starts_at_once(self) -> None:
        late = Job(name="lint", stage_index=5)
        assert moves(job("a", stage=0), late) == {"a": "enqueue", "lint": "enqueue"}

    def test_names_that_are_not_in_the_pipeline_are_not_waited_for(self) -> None:
        assert moves(job("a", "created", "elsewhere")) == {"a": "enqueue"}

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ("success", "enqueue skip enqueue"),
            ("failed", "skip enqueue enqueue"),
            ("canceled", "skip skip skip"),
            ("skipped", "skip skip enqueue"),
            ("manual", ""),
        ],
    )
    def test_one_that_did_not_run_is_missed(self, state: str, expected: str) -> None:
        whens = ("on_success", "on_failure", "always")
        found = moves(job("a", state), *(job(when, "created", "a", when=when) for when in whens))
        assert list(found.values()) == expected.split()

    def test_an_optional_manual_one_was_not_run(self) -> None:
        gate = job("gate", "manual", optional=True)
        assert moves(gate, job("b", "created", "gate"), job("c", "created", "gate", when="always")) == {
            "b": "skip",
            "c": "enqueue",
        }

    def test_one_that_failed_and_may_is_as_good_as_a_success(self) -> None:
        assert moves(job("a", "failed", optional=True), job("b", "created", "a")) == {"b": "enqueue"}

    def test_a_skip_runs_along_a_chain_of_one_stage_in_any_order(self) -> None:
        chain = [job(f"job{number}", "created", f"job{number - 1}") for number in range(1, 2000)]
        found = moves(*reversed(chain), job("job0", "failed"))
        assert found == dict.fromkeys((each.name for each in chain), "skip")

    def test_the_work_grows_with_the_number_of_needs(self) -> None:
        def lookups(size: int) -> int:
            names = [Counted(f"job{number}") for number in range(size)]
            Counted.lookups = 0
            next_moves(
                [
                    job("first", "failed"),
                    *(Job(name=name, waits_for=("first",)) for name in names),
                    Job(name="last", waits_for=tuple(names)),
                ]
            )
            return Counted.lookups

        assert lookups(400) < 3 * lookups(200)


class Counted(str):
    """A name that counts how often it is looked up."""

    __slots__ = ()
    lookups: ClassVar[int] = 0

    def __hash__(self) -> int:
        Counted.lookups += 1
        return super().__hash__()


class TestPipelineState:
    @pytest.mark.parametrize(
        ("jobs", "expected"),
        [
            ([], "skipped"),
            ([job("a")], "created"),
            ([job("a", "pending"), job("b")], "pending"),
            ([job("a", "leased"), job("b", "pending")], "running"),
            ([job("a", "running"), job("b", "failed")], "running"),
            ([job("a", "success"), job("b", "pending")], "running"),
            ([job("a", "success"), job("b")], "running"),
            ([job("a", "canceling"), job("b", "running")], "running"),
            ([job("a", "canceling"), job("b", "canceled"), job("c", "failed")], "canceling"),
            ([job("a", "success"), job("b", "success")], "success"),
            ([job("a", "success"), job("b", "skipped")], "success"),
            ([job("a", "skipped")], "skipped"),
            ([job("a", "success"), job("b", "failed")], "failed"),
            ([job("a", "success"), job("b", "failed", optional=True)], "success"),
            ([job("b", "failed", optional=True)], "success"),
            ([job("a", "failed"), job("b", "canceled")], "failed"),
            ([job("a", "success"), job("b", "canceled")], "canceled"),
            ([job("a", "success"), job("b", "canceled", optional=True)], "success"),
            ([job("a", "success"), job("gate", "manual"), job("c", "created", "gate")], "manual"),
            ([job("a", "success"), job("gate", "manual", optional=True)], "success"),
            ([job("a", "failed"), job("gate", "manual", optional=True)], "failed"),
            ([job("gate", "manual", optional=True)], "skipped"),
            ([job("a", "success"), job("later", "scheduled"), job("c", stage=1)], "scheduled"),
            ([job("a", "waiting_for_resource"), job("gate", "manual"), job("b", "scheduled")], "waiting_for_resource"),
            ([job("gate", "manual"), job("b", "scheduled")], "manual"),
            ([job("a", "waiting_for_resource"), job("b", "running")], "running"),
            ([job("a", "preparing")], "preparing"),
        ],
    )
    def test_words(self, jobs: list[Job], expected: str) -> None:
        assert pipeline_state(jobs) == expected

    @given(st.lists(st.tuples(st.sampled_from(JobState), st.booleans()), min_size=1))
    def test_it_is_over_exactly_when_nothing_can_happen_by_itself(self, jobs: list[tuple[JobState, bool]]) -> None:
        found = [Job(name=str(n), state=state, allow_failure=may) for n, (state, may) in enumerate(jobs)]
        over = all(state in FINAL or (state is JobState.MANUAL and may) for state, may in jobs)
        assert (pipeline_state(found) in ("success", "failed", "canceled", "skipped")) == over


@st.composite
def pipelines(draw: st.DrawFn) -> list[Job]:
    """Jobs in any state, each waiting for earlier stages or for some of those before it, in any order."""
    jobs: list[Job] = []
    for number in range(draw(st.integers(1, 9))):
        names = [other.name for other in jobs]
        jobs.append(
            Job(
                name=f"job{number}",
                state=draw(st.sampled_from(JobState)),
                when=draw(st.sampled_from(When)),
                allow_failure=draw(st.booleans()),
                stage_index=number // 3,
                by_stage=draw(st.booleans()),
                waits_for=tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
            )
        )
    return draw(st.permutations(jobs))


@given(pipelines())
def test_a_created_job_is_left_only_behind_one_that_is_not_over(jobs: list[Job]) -> None:
    found = next_moves(jobs)
    moved = {move.name: move.event for move in found}
    assert len(moved) == len(found)
    states = {
        each.name: after(each.state, moved[each.name]) if each.name in moved else each.state
        for each in jobs
        if each.name not in moved or each.state is JobState.CREATED
    }
    assert len(states) == len(jobs), "only created jobs move"
    optional = {each.name for each in jobs if each.allow_failure}
    for each in jobs:
        earlier = [other.name for other in jobs if other.stage_index < each.stage_index]
        waited = earlier if each.by_stage else each.waits_for
        held_up = any(
            states[name] not in FINAL and not (states[name] is JobState.MANUAL and name in optional) for name in waited
        )
        if each.state is JobState.CREATED:
            assert (each.name not in moved) == held_up
            assert (
                moved.get(each.name) in (None, JobEvent.SKIP)
                or each.when is not When.ON_FAILURE
                or any(states[name] is JobState.FAILED for name in waited)
            )


@pytest.mark.parametrize(
    ("tries", "retry_max", "when", "reason", "expected"),
    [
        (1, 0, ("always",), "script_failure", False),
        (1, 1, ("always",), "script_failure", True),
        (2, 1, ("always",), "script_failure", False),
        (2, 2, ("always",), "script_failure", True),
        (1, 2, ("runner_system_failure",), "script_failure", False),
        (1, 2, ("runner_system_failure", "script_failure"), "script_failure", True),
        (1, 2, ("stuck_or_timeout_failure",), "no_updates_running", True),
        (1, 2, ("stuck_or_timeout_failure",), "stuck_pending_no_matching_runners", True),
        (1, 2, ("stuck_or_timeout_failure",), "server_timeout_running", False),
        (1, 2, ("job_execution_timeout",), "server_timeout_running", True),
        (1, 2, ("job_execution_timeout",), "server_timeout_canceling", True),
        (1, 2, ("stale_schedule",), "stale_schedule", True),
        (1, 2, ("always",), "missing_dependency_failure", False),
        (1, 2, (), "script_failure", False),
    ],
)
def test_further_tries(tries: int, retry_max: int, when: tuple[str, ...], reason: str, expected: bool) -> None:
    assert retries_left(tries=tries, retry_max=retry_max, retry_when=when, reason=reason) is expected


@pytest.mark.parametrize(
    ("when", "codes", "exit_code", "expected"),
    [
        ((), (137,), 137, True),
        ((), (137,), 1, False),
        ((), (137,), None, False),
        (("runner_system_failure",), (137,), 137, True),
        (("script_failure",), (137,), 1, True),
    ],
)
def test_further_tries_by_exit_code(
    when: tuple[str, ...], codes: tuple[int, ...], exit_code: int | None, expected: bool
) -> None:
    left = retries_left(
        tries=1,
        retry_max=1,
        retry_when=when,
        reason="script_failure",
        retry_exit_codes=codes,
        exit_code=exit_code,
    )
    assert left is expected


def test_the_stored_form_of_what_a_job_waits_for() -> None:
    assert waits_for_names({"c": ["b", "a", "b"]}, "c") == ("a", "b")
    assert waits_for_names({}, "c") == ()
