"""How a trigger job changes with the state of its downstream pipeline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remuda.cell.core.pipelines import trigger_jobs
from remuda.cell.values import Job, Pipeline
from remuda.cell.values.changes import Changes
from remuda.model.job import FailureReason, JobId, JobState, PipelineId
from remuda.model.progress import OVER
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline

STATUSES = ["created", "pending", "running", "manual", "scheduled", "canceling", *sorted(OVER)]


def a_trigger(state: str, **changes: object) -> Job:
    return a_job("go", state=JobState(state), is_trigger=True, **changes)


def downstream(status: str, *, is_child: bool = True) -> Pipeline:
    return a_pipeline(id=PipelineId(2), status=status, is_child=is_child, upstream_job_id=JobId(1))


def follow(job: Job, pipeline: Pipeline, strategy: str) -> Job:
    """Return the job as it is after a call of `trigger_jobs.follow`."""
    changes = trigger_jobs.follow(a_family([job]), job.id, pipeline, strategy, NOW + 1)
    return changes.jobs[0] if changes.jobs else job


class TestRunning:
    @pytest.mark.parametrize(
        ("strategy", "status", "state"),
        [
            ("", "created", "success"),
            ("", "failed", "success"),
            ("depend", "success", "success"),
            ("depend", "failed", "failed"),
            ("depend", "skipped", "failed"),
            ("depend", "canceled", "canceled"),
            ("mirror", "skipped", "success"),
            ("mirror", "failed", "failed"),
            *(("depend", status, "running") for status in STATUSES[:6]),
            *(("mirror", status, "running") for status in STATUSES[:6]),
        ],
    )
    def test_ends_with_the_status_of_its_pipeline(self, strategy: str, status: str, state: str) -> None:
        job = follow(a_trigger("running"), downstream(status), strategy)
        assert (job.state.value, job.downstream_id) == (state, 2)

    def test_does_not_change_while_its_pipeline_runs(self) -> None:
        job = a_trigger("running", downstream_id=PipelineId(2))
        assert trigger_jobs.follow(a_family([job]), job.id, downstream("running"), "depend", NOW) == Changes()

    def test_has_a_failure_message(self) -> None:
        job = follow(a_trigger("running"), downstream("failed"), "depend")
        assert (job.failure_reason, job.failure_message) == ("unknown_failure", "its downstream pipeline 2 is failed")

    def test_is_not_retried_automatically(self) -> None:
        job = a_trigger("running", retry_max=2)
        assert trigger_jobs.follow(a_family([job]), job.id, downstream("failed"), "depend", NOW).retries == ()


class TestCanceling:
    @pytest.mark.parametrize("status", STATUSES)
    def test_waits_for_a_child_to_stop(self, status: str) -> None:
        job = follow(a_trigger("canceling"), downstream(status), "depend")
        assert job.state is (JobState.CANCELED if status in OVER else JobState.CANCELING)

    def test_does_not_wait_for_another_project(self) -> None:
        pipeline = downstream("running", is_child=False)
        assert follow(a_trigger("canceling"), pipeline, "depend").state is JobState.CANCELED

    def test_ends_at_once_without_a_pipeline(self) -> None:
        changes = trigger_jobs.stop(a_family([a_trigger("canceling")]), JobId(1), NOW)
        assert changes.jobs[0].state is JobState.CANCELED


class TestFinished:
    @pytest.mark.parametrize(
        ("state", "status", "is_child", "expected"),
        [
            ("failed", "running", True, "running"),
            ("failed", "running", False, "running"),
            ("failed", "success", True, "success"),
            ("failed", "canceled", True, "canceled"),
            ("success", "failed", True, "failed"),
            ("canceled", "running", True, "running"),
            ("canceled", "running", False, "canceled"),
            ("canceled", "success", True, "canceled"),
            ("canceled", "success", False, "canceled"),
        ],
    )
    def test_follows_a_pipeline_that_was_resumed(self, state: str, status: str, is_child: bool, expected: str) -> None:
        job = a_trigger(state, downstream_id=PipelineId(2))
        assert follow(job, downstream(status, is_child=is_child), "depend").state.value == expected

    def test_revives_skipped_jobs_behind_it(self) -> None:
        job = a_trigger("failed", downstream_id=PipelineId(2), failure_reason="unknown_failure")
        behind = a_job("deploy", id=JobId(2), state=JobState.SKIPPED, waits_for=("go",))
        changes = trigger_jobs.follow(a_family([job, behind]), job.id, downstream("running"), "depend", NOW)
        assert {changed.name: changed.state.value for changed in changes.jobs} == {"go": "running", "deploy": "created"}
        assert changes.jobs[0].failure_reason is None

    def test_follows_only_its_own_pipeline(self) -> None:
        job = a_trigger("failed", downstream_id=PipelineId(3))
        assert follow(job, downstream("running"), "depend") == job
        assert follow(a_trigger("failed"), downstream("running"), "depend") == a_trigger("failed")

    def test_without_a_strategy_does_not_change(self) -> None:
        job = a_trigger("success", downstream_id=PipelineId(2))
        assert follow(job, downstream("failed"), "") == job


def test_a_retried_job_does_not_change() -> None:
    empty = a_family([])
    assert trigger_jobs.start(empty, JobId(1), NOW) == Changes()
    assert trigger_jobs.stop(empty, JobId(1), NOW) == Changes()
    assert trigger_jobs.follow(empty, JobId(1), downstream("failed"), "depend", NOW) == Changes()
    assert trigger_jobs.fail(empty, JobId(1), FailureReason.INVALID_TRIGGER, "", NOW) == Changes()


@given(
    st.sampled_from(JobState),
    st.sampled_from(STATUSES),
    st.sampled_from(["", "depend", "mirror"]),
    st.booleans(),
    st.booleans(),
)
def test_following_twice(state: JobState, status: str, strategy: str, is_child: bool, has_downstream_id: bool) -> None:
    job = a_job("go", state=state, is_trigger=True, downstream_id=PipelineId(2) if has_downstream_id else None)
    family = a_family([job])
    pipeline = downstream(status, is_child=is_child)
    first = trigger_jobs.follow(family, job.id, pipeline, strategy, NOW)
    family = replace(family, jobs=first.jobs or family.jobs, pipeline=first.pipeline or family.pipeline)
    assert trigger_jobs.follow(family, job.id, pipeline, strategy, NOW + 1).jobs == ()
