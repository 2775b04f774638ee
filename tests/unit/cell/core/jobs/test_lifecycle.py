"""The life of jobs in their pipeline: ends, retries, cancel, manual and delayed jobs, resource groups."""

from collections.abc import Callable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.counting_name import CountingName

from remuda.cell.core.jobs import leases, lifecycle
from remuda.cell.core.jobs.family import RUNTIME, Outcome, further_try
from remuda.cell.errors import InvalidError
from remuda.cell.values import Family, Job
from remuda.cell.values.changes import Changes
from remuda.model.job import FINAL, FailureReason, JobId, JobState, RunnerId
from remuda.model.progress import When
from remuda.pipeline import Environment, Trigger
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline, a_spec, new_jobs

FAILED = Outcome(succeeded=False, reason=FailureReason.SCRIPT_FAILURE, reported="failed")
PASSED = Outcome(succeeded=True, reported="success")


def apply(family: Family, changes: Changes) -> Family:
    """Apply changes as a store does."""
    jobs = {job.id: job for job in family.jobs} | {job.id: job for job in changes.jobs}
    for number, retry in enumerate(changes.retries, start=max(jobs) + 1):
        jobs[JobId(number)] = replace(retry.job, id=JobId(number))
    current = tuple(job for job in jobs.values() if not job.retried)
    return replace(family, pipeline=changes.pipeline or family.pipeline, jobs=current)


def start_job(job: Job) -> Job:
    terms = leases.Lease(runner_id=RunnerId(1), system_id=None, request_id=None, until=NOW + 60)
    leased = leases.lease(job, terms, NOW)
    assert leased is not None
    acknowledged = leases.acknowledge(leased, leased.epoch, NOW)
    assert acknowledged is not None
    return acknowledged


def with_job(family: Family, job: Job) -> Family:
    return replace(family, jobs=tuple(job if old.id == job.id else old for old in family.jobs))


def finish_job(family: Family, name: str, outcome: Outcome) -> Family:
    """Run a job of the family to its end."""
    job = start_job(next(job for job in family.jobs if job.name == name))
    family = with_job(family, job)
    return apply(family, lifecycle.finish(family, job.id, job.epoch, outcome, NOW))


def states(family: Family) -> Mapping[str, str]:
    return {job.name: job.state.value for job in family.jobs}


def a_new_family(*jobs: Job, **changes: object) -> Family:
    family = a_family([replace(job, id=JobId(number)) for number, job in enumerate(jobs, start=1)], **changes)
    return apply(family, lifecycle.begin(family, NOW))


def test_a_new_job_has_the_values_of_its_spec() -> None:
    spec = a_spec(
        "deploy",
        tags=("prod",),
        when="delayed",
        start_in_seconds=60,
        allow_failure_exit_codes=(3,),
        timeout_seconds=9,
        retry_max=2,
        retry_exit_codes=(137,),
        interruptible=True,
        environment=Environment(name="$CI_COMMIT_REF_SLUG", action="prepare"),
        trigger=Trigger(project="acme/other"),
    )
    new = replace(new_jobs(spec)[0], resource_group="prod", environment="main")
    job = lifecycle.new_job(new, a_pipeline(protected=True), JobId(5), NOW)
    assert job == a_job(
        "deploy",
        id=JobId(5),
        tags=("prod",),
        when=When.DELAYED,
        start_in_seconds=60,
        allow_failure_exit_codes=(3,),
        by_stage=True,
        timeout_seconds=9,
        retry_max=2,
        retry_exit_codes=(137,),
        protected=True,
        is_trigger=True,
        interruptible=True,
        resource_group="prod",
        environment="main",
        environment_action="prepare",
    )


def test_a_retry_copies_the_job_without_its_runtime_fields() -> None:
    new_values = {"id", "state", "created_at", "updated_at", "tries", "lost_tries", "allow_failure"}
    copied = {
        "ends_alone",
        "version",
        "pipeline_id",
        "project_id",
        "name",
        "organization_id",
        "group_ids",
        "closed_to",
        "stage",
        "stage_index",
        "ref",
        "tag",
        "when",
        "protected",
        "tags",
        "by_stage",
        "waits_for",
        "artifacts_from",
        "timeout_seconds",
        "retry_max",
        "retry_when",
        "retry_exit_codes",
        "is_trigger",
        "start_in_seconds",
        "allow_failure_exit_codes",
        "interruptible",
        "resource_group",
        "environment",
        "environment_action",
        "environment_plan",
        "priority",
        "play_variables",
        "inputs",
    }
    fields = [field.name for field in msgspec.structs.fields(Job)]
    assert sorted(fields) == sorted([*new_values, *copied, *RUNTIME]), (
        "each field of a job belongs to exactly one group"
    )

    plain = a_job()
    values = {name: object() for name in copied | RUNTIME}
    retry = further_try(replace(plain, **values), 2, NOW + 5)
    assert {name: getattr(retry, name) for name in copied} == {name: values[name] for name in copied}
    assert {name: getattr(retry, name) for name in RUNTIME} == {name: getattr(plain, name) for name in RUNTIME}
    assert (retry.id, retry.state, retry.created_at, retry.tries) == (0, JobState.CREATED, NOW + 5, 2)


@given(
    st.lists(st.tuples(st.sampled_from(JobState), st.booleans(), st.integers(1, 3)), min_size=1, max_size=5),
    st.sampled_from([JobState.PENDING, JobState.LEASED, JobState.RUNNING]),
)
def test_finish_is_alike_with_an_active_job(others: list[tuple[JobState, bool, int]], active_state: JobState) -> None:
    job = replace(start_job(a_job(state=JobState.PENDING, stage_index=4)), ends_alone=True)
    active = a_job("further", id=JobId(2), state=active_state, stage_index=4)
    # The other jobs do not wait for this job, and `resume` has moved them as far as possible.
    rest = [
        a_job(f"job{number}", id=JobId(number), state=state, allow_failure=allowed, stage_index=stage, by_stage=True)
        for number, (state, allowed, stage) in enumerate(others, start=3)
    ]
    family = a_family([job, active, *rest], started_at=NOW)
    family = apply(family, lifecycle.resume(family, NOW))
    assert family.pipeline.status == "running"
    finished = lifecycle.finish_alone(job, job.epoch, PASSED, NOW + 1)
    assert finished is not None
    assert lifecycle.finish(family, job.id, job.epoch, PASSED, NOW + 1) == Changes(jobs=(finished,))


def test_finish_alone_is_not_possible_if_other_jobs_may_change() -> None:
    job = replace(start_job(a_job(state=JobState.PENDING)), ends_alone=True)
    assert lifecycle.finish_alone(job, job.epoch, FAILED, NOW) is None
    assert lifecycle.finish_alone(job, job.epoch + 1, PASSED, NOW) is None
    assert lifecycle.finish_alone(replace(job, ends_alone=False), job.epoch, PASSED, NOW) is None
    assert lifecycle.finish_alone(replace(job, state=JobState.LEASED), job.epoch, PASSED, NOW) is None
    assert lifecycle.finish_alone(replace(job, state=JobState.CANCELING), job.epoch, PASSED, NOW) is None


@pytest.mark.parametrize("act", [lifecycle.begin, lifecycle.cancel_all, lifecycle.retry_all])
def test_a_pipeline_without_jobs_keeps_its_status(act: Callable[[Family, float], Changes]) -> None:
    assert act(a_family([], status="failed", yaml_errors="line 1"), NOW) == Changes()


def test_an_end_with_another_epoch_is_ignored() -> None:
    job = start_job(a_job(state=JobState.PENDING))
    assert lifecycle.finish(a_family([job]), job.id, job.epoch + 1, FAILED, NOW) == Changes()
    assert lifecycle.finish(a_family([]), job.id, job.epoch, FAILED, NOW) == Changes()


def test_an_end_is_final() -> None:
    job = start_job(a_job(state=JobState.PENDING))
    family = apply(a_family([job]), lifecycle.finish(a_family([job]), job.id, job.epoch, FAILED, NOW + 5))
    assert family.jobs[0].finished_at == NOW + 5
    assert (family.pipeline.status, family.pipeline.finished_at) == ("failed", NOW + 5)
    assert lifecycle.finish(family, job.id, job.epoch, PASSED, NOW + 6) == Changes()


def test_a_retry_revives_skipped_jobs_behind_jobs_that_ran() -> None:
    a = a_job("a", id=JobId(1), state=JobState.FAILED)
    b = a_job("b", id=JobId(2), state=JobState.SUCCESS, waits_for=("a",), when=When.ALWAYS)
    c = a_job("c", id=JobId(3), state=JobState.SKIPPED, waits_for=("b",), when=When.ON_FAILURE)
    d = a_job("d", id=JobId(4), state=JobState.SKIPPED)
    family = apply(a_family([a, b, c, d]), lifecycle.retry(a_family([a, b, c, d]), a.id, NOW))
    # c is revived and skipped again, because b has not failed; d does not depend on a.
    assert states(family) == {"a": "pending", "b": "success", "c": "skipped", "d": "skipped"}


def test_cancel_of_a_pipeline_is_idempotent() -> None:
    jobs = [a_job(state.value, id=JobId(number), state=state) for number, state in enumerate(JobState, start=1)]
    family = apply(a_family(jobs), lifecycle.cancel_all(a_family(jobs), NOW))
    assert {job.state for job in family.jobs} == {*FINAL, JobState.CANCELING}
    assert lifecycle.cancel_all(family, NOW + 1).jobs == ()


class TestExitCodes:
    def test_an_allowed_exit_code_makes_the_failure_allowed(self) -> None:
        family = a_new_family(a_job("a", allow_failure_exit_codes=(3, 4)), a_job("b", waits_for=("a",)))
        passed = finish_job(family, "a", replace(FAILED, exit_code=3))
        assert states(passed) == {"a": "failed", "b": "pending"}
        assert passed.jobs[0].allow_failure
        failed = finish_job(family, "a", replace(FAILED, exit_code=1))
        assert (states(failed), failed.pipeline.status) == ({"a": "failed", "b": "skipped"}, "failed")

    def test_a_retry_does_not_keep_the_allowed_failure(self) -> None:
        family = finish_job(a_new_family(a_job("a", allow_failure_exit_codes=(3,))), "a", replace(FAILED, exit_code=3))
        assert family.pipeline.status == "success"
        retried = apply(family, lifecycle.retry(family, family.jobs[0].id, NOW))
        assert finish_job(retried, "a", replace(FAILED, exit_code=1)).pipeline.status == "failed"

    def test_an_exit_code_can_cause_a_retry(self) -> None:
        family = a_new_family(a_job("a", retry_max=1, retry_when=(), retry_exit_codes=(137,)))
        assert states(finish_job(family, "a", replace(FAILED, exit_code=1))) == {"a": "failed"}
        retried = finish_job(family, "a", replace(FAILED, exit_code=137))
        assert [(job.state, job.tries) for job in retried.jobs] == [(JobState.PENDING, 2)]


class TestCancelOnJobFailure:
    jobs = (a_job("a", retry_max=1), a_job("b"), a_job("c", waits_for=("b",)))

    def test_all_jobs_are_canceled_after_the_last_retry(self) -> None:
        family = a_new_family(*self.jobs, cancel_on_job_failure="all")
        family = finish_job(family, "a", FAILED)
        assert states(family) == {"a": "pending", "b": "pending", "c": "created"}
        family = finish_job(family, "a", FAILED)
        assert (states(family), family.pipeline.status) == ({"a": "failed", "b": "canceled", "c": "canceled"}, "failed")

    def test_nothing_is_canceled_if_the_failure_is_allowed_or_the_option_is_unset(self) -> None:
        allowed = a_new_family(a_job("a", allow_failure=True), a_job("b"), cancel_on_job_failure="all")
        assert states(finish_job(allowed, "a", FAILED)) == {"a": "failed", "b": "pending"}
        assert states(finish_job(a_new_family(a_job("a"), a_job("b")), "a", FAILED)) == {"a": "failed", "b": "pending"}


class TestRevive:
    def test_jobs_skipped_behind_a_retried_job_wait_again_in_any_order(self) -> None:
        first = a_job("first", id=1, state=JobState.FAILED)
        chain = [
            a_job(
                f"c{number}",
                id=number + 2,
                state=JobState.SKIPPED,
                by_stage=False,
                waits_for=(f"c{number + 1}" if number < 9 else "first",),
            )
            for number in range(10)
        ]
        late = a_job("late", id=20, state=JobState.SKIPPED, by_stage=True, stage_index=2)
        beside = a_job("beside", id=21, state=JobState.SKIPPED, by_stage=True)
        family = a_family([first, *chain, late, beside])
        retried = apply(family, lifecycle.retry(family, first.id, NOW))
        waiting = {job.name for job in retried.jobs if job.state is JobState.CREATED}
        assert waiting == {"late", *(job.name for job in chain)}

    def test_the_work_is_linear_in_the_number_of_jobs(self) -> None:
        def count_lookups(size: int) -> int:
            names = [CountingName(f"job{number}") for number in range(size)]
            first = a_job("first", id=1, state=JobState.FAILED)
            chain = [
                a_job(name, id=number + 2, state=JobState.SKIPPED, by_stage=False, waits_for=(names[number + 1],))
                for number, name in enumerate(names[:-1])
            ]
            last = a_job(names[-1], id=size + 2, state=JobState.SKIPPED, by_stage=False, waits_for=("first",))
            CountingName.lookups = 0
            lifecycle.retry(a_family([first, *chain, last]), first.id, NOW)
            return CountingName.lookups

        assert count_lookups(400) < 3 * count_lookups(200)


class TestDelayed:
    def test_it_starts_at_its_time(self) -> None:
        family = a_new_family(a_job("a", when=When.DELAYED, start_in_seconds=60))
        assert (family.jobs[0].state, family.jobs[0].scheduled_at) == (JobState.SCHEDULED, NOW + 60)
        assert family.pipeline.status == "scheduled"
        assert lifecycle.start_due(family, NOW + 59.9) == Changes()
        due = apply(family, lifecycle.start_due(family, NOW + 60))
        assert (due.jobs[0].state, due.jobs[0].scheduled_at) == (JobState.PENDING, None)

    def test_a_user_can_play_unschedule_or_cancel_it(self) -> None:
        family = a_new_family(a_job("a", when=When.DELAYED, start_in_seconds=60))
        [job] = family.jobs
        assert states(apply(family, lifecycle.play(family, job.id, NOW, {}))) == {"a": "pending"}
        manual = apply(family, lifecycle.unschedule(family, job.id, NOW))
        assert (states(manual), manual.pipeline.status) == ({"a": "manual"}, "manual")
        assert states(apply(family, lifecycle.cancel(family, job.id, NOW))) == {"a": "canceled"}
        with pytest.raises(InvalidError, match="manual"):
            lifecycle.unschedule(manual, job.id, NOW)


class TestManual:
    def test_only_manual_and_scheduled_jobs_can_be_played(self) -> None:
        for state in set(JobState) - {JobState.MANUAL, JobState.SCHEDULED}:
            family = a_family([a_job(state=state)])
            with pytest.raises(InvalidError, match="played"):
                lifecycle.play(family, JobId(1), NOW, {})

    def test_play_variables_are_kept_for_retries(self) -> None:
        family = a_new_family(a_job("a", when=When.MANUAL, retry_max=1))
        family = apply(family, lifecycle.play(family, JobId(1), NOW, {"TARGET": "prod"}))
        assert finish_job(family, "a", FAILED).jobs[0].play_variables == {"TARGET": "prod"}

    def test_inputs_are_kept_for_retries_unless_they_are_replaced(self) -> None:
        family = a_new_family(a_job("a", when=When.MANUAL))
        family = apply(family, lifecycle.play(family, JobId(1), NOW, {}, {"env": "prod", "count": 2}))
        family = finish_job(family, "a", FAILED)
        assert family.jobs[0].inputs == {"env": "prod", "count": 2}
        again = lifecycle.retry(family, family.jobs[0].id, NOW, {"count": 3})
        assert (again.jobs[0].inputs, again.retries[0].job.inputs) == (
            {"env": "prod", "count": 2},
            {"env": "prod", "count": 3},
        )

    def test_jobs_skipped_behind_an_optional_manual_job_wait_again_when_it_is_played(self) -> None:
        gate = a_job("gate", when=When.MANUAL, allow_failure=True)
        family = a_new_family(gate, a_job("deploy", waits_for=("gate",)), a_job("after", waits_for=("deploy",)))
        assert states(family) == {"gate": "manual", "deploy": "skipped", "after": "skipped"}
        assert family.pipeline.status == "skipped"
        family = apply(family, lifecycle.play(family, JobId(1), NOW, {}))
        assert states(family) == {"gate": "pending", "deploy": "created", "after": "created"}
        assert states(finish_job(family, "gate", PASSED)) == {
            "gate": "success",
            "deploy": "pending",
            "after": "created",
        }

    def test_a_retried_manual_job_is_manual_again(self) -> None:
        family = a_new_family(a_job("a"), a_job("gate", when=When.MANUAL))
        family = finish_job(family, "a", PASSED)
        family = apply(family, lifecycle.play(family, JobId(2), NOW, {}))
        family = finish_job(family, "gate", FAILED)
        family = apply(family, lifecycle.retry_all(family, NOW))
        assert (states(family), family.pipeline.status) == ({"a": "success", "gate": "manual"}, "manual")


class TestResourceGroups:
    def test_one_job_runs_at_a_time_the_oldest_first(self) -> None:
        family = a_new_family(*(a_job(name, resource_group="prod") for name in "abc"))
        assert states(family) == {"a": "pending", "b": "waiting_for_resource", "c": "waiting_for_resource"}
        assert states(finish_job(family, "a", FAILED)) == {"a": "failed", "b": "pending", "c": "waiting_for_resource"}

    def test_a_job_waits_for_a_group_of_another_pipeline(self) -> None:
        family = a_family([a_job("a", resource_group="prod"), a_job("b", id=JobId(2), resource_group="test")])
        blocked = replace(family, taken=frozenset({"prod"}))
        waiting = apply(blocked, lifecycle.begin(blocked, NOW))
        assert states(waiting) == {"a": "waiting_for_resource", "b": "pending"}
        assert lifecycle.resume(waiting, NOW).jobs == ()
        free = replace(waiting, taken=frozenset())
        assert states(apply(free, lifecycle.resume(free, NOW))) == {"a": "pending", "b": "pending"}

    def test_cancel_of_a_waiting_job_does_not_free_the_group(self) -> None:
        family = a_new_family(*(a_job(name, resource_group="prod") for name in "abc"))
        family = apply(family, lifecycle.cancel(family, JobId(2), NOW))
        assert states(family) == {"a": "pending", "b": "canceled", "c": "waiting_for_resource"}

    def test_a_played_and_a_delayed_job_wait_too(self) -> None:
        family = a_new_family(
            a_job("a", resource_group="prod"),
            a_job("gate", resource_group="prod", when=When.MANUAL),
            a_job("later", resource_group="prod", when=When.DELAYED, start_in_seconds=1),
        )
        family = apply(family, lifecycle.play(family, JobId(2), NOW, {}))
        family = apply(family, lifecycle.start_due(family, NOW + 1))
        assert states(family) == {"a": "pending", "gate": "waiting_for_resource", "later": "waiting_for_resource"}
        assert family.pipeline.status == "pending" or family.pipeline.status == "running"

    def test_a_retry_keeps_the_group(self) -> None:
        family = a_new_family(a_job("a", resource_group="prod", retry_max=1), a_job("b", resource_group="prod"))
        assert states(finish_job(family, "a", FAILED)) == {"b": "waiting_for_resource", "a": "pending"}


@st.composite
def families(draw: st.DrawFn) -> Family:
    """Draw pipelines in which each job waits for earlier stages or for some of the jobs before it."""
    jobs: list[Job] = []
    for number in range(1, draw(st.integers(1, 8)) + 1):
        names = [job.name for job in jobs]
        jobs.append(
            a_job(
                f"job{number}",
                id=JobId(number),
                when=draw(st.sampled_from(When)),
                start_in_seconds=10,
                allow_failure=draw(st.booleans()),
                stage_index=number // 3,
                by_stage=draw(st.booleans()),
                waits_for=tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
                retry_max=draw(st.integers(0, 2)),
                resource_group=draw(st.sampled_from(["", "", "prod", "test"])),
            )
        )
    return a_family(jobs, cancel_on_job_failure=draw(st.sampled_from(["none", "none", "all"])))


@given(families(), st.data())
def test_every_pipeline_ends_or_waits_for_a_manual_job(family: Family, data: st.DataObject) -> None:
    family = apply(family, lifecycle.begin(family, NOW))
    for _ in range(100):
        pending = [job for job in family.jobs if job.state is JobState.PENDING]
        groups = [job.resource_group for job in pending if job.resource_group]
        assert len(groups) == len(set(groups))
        manual = [job for job in family.jobs if job.state is JobState.MANUAL]
        if pending:
            assert family.pipeline.status in ("pending", "running")
            outcome = data.draw(st.sampled_from([PASSED, FAILED]))
            family = finish_job(family, data.draw(st.sampled_from(pending)).name, outcome)
        elif any(job.state is JobState.SCHEDULED for job in family.jobs):
            family = apply(family, lifecycle.start_due(family, NOW + 10))
        elif manual and data.draw(st.sampled_from([True, False])):
            family = apply(family, lifecycle.play(family, manual[0].id, NOW, {}))
        else:
            break
    open_states = {job.state for job in family.jobs if job.state not in FINAL}
    is_over = family.pipeline.status in ("success", "failed", "canceled", "skipped")
    if open_states:
        assert JobState.MANUAL in open_states
        assert open_states <= {JobState.MANUAL, JobState.CREATED}
    else:
        assert is_over
    assert is_over == (family.pipeline.finished_at is not None)
    assert all(job.tries <= job.retry_max + 1 for job in family.jobs)
