"""Progress of a pipeline: which jobs start or are skipped, the pipeline's state, and retries."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.counting_name import CountingName

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
    """Create a job that waits for earlier stages if a stage is given, otherwise for its needs."""
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

    def test_a_stage_waits_for_all_earlier_stages(self) -> None:
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
    def test_when_after_a_stage(self, state: str, expected: str) -> None:
        whens = ("on_success", "on_failure", "always", "manual", "delayed")
        events = moves(job("a", state, stage=0), *(job(when, stage=1, when=when) for when in whens))
        assert list(events.values()) == expected.split()

    @pytest.mark.parametrize("state", ["failed", "canceled", "manual"])
    def test_a_job_with_allow_failure_does_not_stop_the_others(self, state: str) -> None:
        first = job("a", state, stage=0, optional=True)
        assert moves(first, job("b", stage=1), job("c", stage=1, when="on_failure")) == {"b": "enqueue", "c": "skip"}

    def test_a_failure_counts_more_than_a_cancellation(self) -> None:
        first_stage = (job("a", "failed", stage=0), job("b", "canceled", stage=0), job("c", "success", stage=0))
        second_stage = (job("clean up", stage=1, when="always"), job("notify", stage=1, when="on_failure"))
        assert moves(*first_stage, *second_stage) == {"clean up": "enqueue", "notify": "enqueue"}

    def test_an_on_failure_job_of_the_first_stage_is_skipped(self) -> None:
        assert moves(job("a", stage=0, when="on_failure")) == {"a": "skip"}

    def test_skips_pass_through_all_stages(self) -> None:
        jobs = (
            job("a", "failed", stage=0),
            job("b", stage=1),
            job("c", stage=2),
            job("clean up", stage=3, when="always"),
            job("notify", stage=3, when="on_failure"),
        )
        assert moves(*jobs) == {"b": "skip", "c": "skip", "clean up": "enqueue", "notify": "enqueue"}

    def test_only_a_blocking_manual_job_stops_the_next_stage(self) -> None:
        optional = (job("gate", stage=0, when="manual", optional=True), job("next", stage=1))
        assert moves(*optional) == {"gate": "ask", "next": "enqueue"}
        assert moves(job("gate", stage=0, when="manual"), job("next", stage=1)) == {"gate": "ask"}


class TestNeeds:
    def test_a_job_waits_for_its_needs_only(self) -> None:
        assert moves(job("a", "success"), job("slow", "running"), job("c", "created", "a")) == {"c": "enqueue"}

    def test_a_job_with_empty_needs_starts_at_once(self) -> None:
        late = Job(name="lint", stage_index=5)
        assert moves(job("a", stage=0), late) == {"a": "enqueue", "lint": "enqueue"}

    def test_needs_outside_of_the_pipeline_are_ignored(self) -> None:
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
    def test_when_after_a_need(self, state: str, expected: str) -> None:
        whens = ("on_success", "on_failure", "always")
        events = moves(job("a", state), *(job(when, "created", "a", when=when) for when in whens))
        assert list(events.values()) == expected.split()

    def test_an_optional_manual_need_counts_as_not_run(self) -> None:
        gate = job("gate", "manual", optional=True)
        assert moves(gate, job("b", "created", "gate"), job("c", "created", "gate", when="always")) == {
            "b": "skip",
            "c": "enqueue",
        }

    def test_an_allowed_failure_of_a_need_counts_as_success(self) -> None:
        assert moves(job("a", "failed", optional=True), job("b", "created", "a")) == {"b": "enqueue"}

    def test_a_skip_passes_along_a_chain_of_needs_in_any_order(self) -> None:
        chain = [job(f"job{number}", "created", f"job{number - 1}") for number in range(1, 2000)]
        events = moves(*reversed(chain), job("job0", "failed"))
        assert events == dict.fromkeys((link.name for link in chain), "skip")

    def test_the_work_is_linear_in_the_number_of_needs(self) -> None:
        def count_lookups(size: int) -> int:
            names = [CountingName(f"job{number}") for number in range(size)]
            CountingName.lookups = 0
            next_moves(
                [
                    job("first", "failed"),
                    *(Job(name=name, waits_for=("first",)) for name in names),
                    Job(name="last", waits_for=tuple(names)),
                ]
            )
            return CountingName.lookups

        assert count_lookups(400) < 3 * count_lookups(200)


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
    def test_state_of_jobs(self, jobs: list[Job], expected: str) -> None:
        assert pipeline_state(jobs) == expected

    @given(st.lists(st.tuples(st.sampled_from(JobState), st.booleans()), min_size=1))
    def test_it_is_over_if_all_jobs_are_final_or_optional_manual(self, jobs: list[tuple[JobState, bool]]) -> None:
        pipeline = [
            Job(name=str(number), state=state, allow_failure=optional) for number, (state, optional) in enumerate(jobs)
        ]
        is_over = all(state in FINAL or (state is JobState.MANUAL and optional) for state, optional in jobs)
        assert (pipeline_state(pipeline) in ("success", "failed", "canceled", "skipped")) == is_over


@st.composite
def pipelines(draw: st.DrawFn) -> list[Job]:
    """Draw jobs in any state and order that wait for earlier stages or for some of the jobs before them."""
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
def test_a_created_job_stays_only_if_it_waits_for_an_unfinished_job(jobs: list[Job]) -> None:
    moves = next_moves(jobs)
    events = {move.name: move.event for move in moves}
    assert len(events) == len(moves)
    states = {
        job.name: after(job.state, events[job.name]) if job.name in events else job.state
        for job in jobs
        if job.name not in events or job.state is JobState.CREATED
    }
    assert len(states) == len(jobs), "only created jobs move"
    optional = {job.name for job in jobs if job.allow_failure}
    for job in jobs:
        earlier = [other.name for other in jobs if other.stage_index < job.stage_index]
        awaited = earlier if job.by_stage else job.waits_for
        is_blocked = any(
            states[name] not in FINAL and not (states[name] is JobState.MANUAL and name in optional) for name in awaited
        )
        if job.state is JobState.CREATED:
            assert (job.name not in events) == is_blocked
            assert (
                events.get(job.name) in (None, JobEvent.SKIP)
                or job.when is not When.ON_FAILURE
                or any(states[name] is JobState.FAILED for name in awaited)
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
def test_retries_by_reason(tries: int, retry_max: int, when: tuple[str, ...], reason: str, expected: bool) -> None:
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
def test_exit_code_retry(when: tuple[str, ...], codes: tuple[int, ...], exit_code: int | None, expected: bool) -> None:
    is_retried = retries_left(
        tries=1,
        retry_max=1,
        retry_when=when,
        reason="script_failure",
        retry_exit_codes=codes,
        exit_code=exit_code,
    )
    assert is_retried is expected


def test_names_that_a_job_waits_for_are_sorted_and_unique() -> None:
    assert waits_for_names({"c": ["b", "a", "b"]}, "c") == ("a", "b")
    assert waits_for_names({}, "c") == ()
