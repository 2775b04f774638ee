"""The explanation of a job in each of its states."""

from typing import Any

import pytest

from remuda.cell.core.waiting.why import NAMED, Situation, explain
from remuda.cell.values import Job
from remuda.model.job import FailureReason, JobId, JobState, PipelineId, RunnerId
from remuda.model.progress import When
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline, a_runner
from remuda.wire.explanations import JobWhy


def why(job: Job, *others: Job, pipeline: dict[str, Any] | None = None, **situation: Any) -> JobWhy:
    family = a_family([*others, job], **(pipeline or {}))
    return explain(Situation(job=job, family=family, project="acme/shop", now=NOW, **situation))


def build(number: int = 10, **changes: Any) -> Job:
    values = {"id": JobId(number), "stage": "build", "stage_index": 0, "state": JobState.RUNNING}
    return a_job(f"build-{number}", **(values | changes))


@pytest.mark.parametrize("state", JobState)
def test_every_state_has_a_summary(state: JobState) -> None:
    explanation = why(a_job(state=state, runner_id=RunnerId(3)))
    assert explanation.summary
    assert explanation.state == state.value
    assert explanation.project == "acme/shop"


class TestWaitingForJobs:
    def test_by_stage(self) -> None:
        explanation = why(
            a_job(by_stage=True), build(10), build(11, state=JobState.PENDING), build(12, state=JobState.SUCCESS)
        )
        assert explanation.summary == 'waits for 2 jobs of earlier stages: "build-10" (running), "build-11" (pending)'
        assert [(wait.kind, wait.stage or (wait.job and wait.job.name)) for wait in explanation.waits_for] == [
            ("stage", "build"),
            ("job", "build-10"),
            ("job", "build-11"),
        ]
        assert explanation.waits_for[0].count == 2

    def test_by_needs(self) -> None:
        explanation = why(a_job(waits_for=("build-11",)), build(10), build(11))
        assert explanation.summary == 'waits for 1 job that it needs: "build-11" (running)'
        assert [wait.kind for wait in explanation.waits_for] == ["job"]

    def test_only_the_first_few_are_named(self) -> None:
        explanation = why(a_job(by_stage=True), *(build(number) for number in range(10, 40)))
        assert sum(wait.kind == "job" for wait in explanation.waits_for) == NAMED
        assert explanation.not_named == 30 - NAMED
        assert "and 27 more" in explanation.summary

    def test_behind_a_manual_job_a_user_must_act(self) -> None:
        explanation = why(a_job(by_stage=True), build(10, state=JobState.MANUAL))
        assert explanation.waits_for[-1].kind == "person"
        assert explanation.waits_for[-1].how == "remuda job play 10"
        assert explanation.advice == ('start "build-10" by hand: remuda job play 10',)

    def test_no_job_waits_for_an_optional_manual_job(self) -> None:
        explanation = why(a_job(by_stage=True), build(10, state=JobState.MANUAL, allow_failure=True))
        assert explanation.waits_for[0].kind == "cell"


class TestOtherWaits:
    def test_a_job_without_runner_says_so_before_it_waits_for_one(self) -> None:
        missing = "no runner has the tag gpu: register one or change the tags"
        for state in (JobState.CREATED, JobState.MANUAL, JobState.SCHEDULED, JobState.WAITING_FOR_RESOURCE):
            explanation = why(a_job(state=state), missing_runner=missing)
            assert explanation.advice[-1] == f"it will then wait for a runner: {missing}"
        assert why(a_job(state=JobState.SUCCESS), missing_runner=missing).advice == ()

    def test_for_a_resource_group(self) -> None:
        holder = a_job("deploy", id=JobId(7), pipeline_id=PipelineId(3), state=JobState.RUNNING)
        explanation = why(a_job(state=JobState.WAITING_FOR_RESOURCE, resource_group="prod"), holder=holder)
        assert (
            explanation.summary
            == 'waits for the resource group "prod", which job 7 "deploy" of pipeline 3 has (running)'
        )
        assert explanation.waits_for[0].job is not None
        assert explanation.waits_for[0].job.pipeline_id == 3

    def test_for_the_scheduled_time(self) -> None:
        explanation = why(a_job(state=JobState.SCHEDULED, scheduled_at=NOW + 40))
        assert explanation.summary == "is delayed until 2025-06-15T15:07:20.000Z, in 40 s"
        assert explanation.waits_for[0].until == NOW + 40

    def test_for_a_user(self) -> None:
        explanation = why(a_job(state=JobState.MANUAL))
        assert explanation.summary == "waits for a person to start it, and later stages of its pipeline wait for it"
        assert explanation.advice == ("start it: remuda job play 1",)
        assert why(a_job(state=JobState.MANUAL, allow_failure=True)).summary == "waits for a person to start it"

    def test_for_a_downstream_pipeline(self) -> None:
        job = a_job(state=JobState.RUNNING, is_trigger=True)
        assert why(job).waits_for[0].kind == "cell"
        explanation = why(job, downstream=a_pipeline(id=PipelineId(8), status="running"), downstream_project="acme/lib")
        assert explanation.summary == "waits for pipeline 8 of acme/lib, which is running"
        assert explanation.waits_for[0].pipeline_id == 8

    def test_for_the_start_by_its_runner(self) -> None:
        job = a_job(state=JobState.LEASED, runner_id=RunnerId(3), system_id="s_1", lease_until=NOW + 60, two_phase=True)
        explanation = why(job, runner=a_runner(id=RunnerId(3), description="big"))
        assert explanation.summary == (
            'was handed out, and waits for runner 3 "big" (s_1) to start it; if the runner does not call by '
            "2025-06-15T15:07:40.000Z, the job is pending again"
        )

    def test_for_the_first_call_of_a_runner_without_two_phase_commit(self) -> None:
        job = a_job(state=JobState.LEASED, runner_id=RunnerId(3), system_id="s_1", leased_at=NOW - 2)
        explanation = why(job, runner=a_runner(id=RunnerId(3), description="big"))
        assert explanation.summary == 'runs on runner 3 "big" (s_1), which got it and has not called about it yet'
        assert (explanation.since, explanation.waits_for) == (NOW - 2, ())

    def test_a_job_of_a_child_pipeline_names_its_trigger_job(self) -> None:
        explanation = why(a_job(), upstream=a_job("go", id=JobId(4), is_trigger=True, state=JobState.RUNNING))
        assert explanation.upstream is not None
        assert (explanation.upstream.id, explanation.upstream.name) == (4, "go")


class TestEnds:
    def test_a_failure(self) -> None:
        explanation = why(a_job(state=JobState.FAILED, failure_reason="script_failure", exit_code=2))
        assert explanation.summary == (
            "failed: script failure, exit code 2; it is a failure of the job's own script or configuration"
        )
        assert explanation.failure is not None
        assert (explanation.failure.reason, explanation.failure.fault, explanation.failure.exit_code) == (
            "script_failure",
            "user",
            2,
        )
        assert explanation.advice == ("read its log: remuda job log 1",)

    def test_a_failure_of_the_runner(self) -> None:
        reason = FailureReason.RUNNER_SYSTEM_FAILURE.value
        explanation = why(a_job(state=JobState.FAILED, failure_reason=reason, failure_message="disk full"))
        assert explanation.failure is not None
        assert (explanation.failure.fault, explanation.failure.message) == ("runner", "disk full")

    def test_a_runner_that_is_configured_wrongly(self) -> None:
        reason = FailureReason.RUNNER_CONFIGURATION_ERROR.value
        explanation = why(a_job(state=JobState.FAILED, failure_reason=reason, failure_message="no engine. Start one"))
        assert explanation.summary == (
            "failed: runner configuration error, no engine; it is a failure of the runner or its machine"
        )
        assert explanation.advice == (
            "change the runner, or what the job asks of it; then retry it: remuda job retry 1",
        )

    @pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUCCESS, JobState.FAILED])
    def test_warnings_of_the_runner(self, state: JobState) -> None:
        assert why(a_job(state=state, warnings=("image a ignored",))).warnings == ("image a ignored",)

    def test_an_unknown_failure_reason(self) -> None:
        explanation = why(a_job(state=JobState.FAILED, failure_reason="new_reason_of_2030"))
        assert explanation.failure is not None
        assert explanation.failure.reason == "new_reason_of_2030"

    def test_a_failure_that_was_retried(self) -> None:
        job = a_job(state=JobState.FAILED, failure_reason="script_failure", retried=True)
        family = a_family([a_job(id=JobId(5), state=JobState.PENDING)])
        explanation = explain(Situation(job=job, family=family, project="acme/shop", now=NOW))
        assert explanation.tried_again_as == 5
        assert explanation.summary.endswith("it was tried again as job 5")

    def test_skipped_because_of_an_earlier_stage(self) -> None:
        explanation = why(a_job(state=JobState.SKIPPED, by_stage=True), build(10, state=JobState.FAILED), build(11))
        assert explanation.summary == 'was skipped: because of "build-10" (failed)'
        assert [cause.name for cause in explanation.because] == ["build-10"]

    def test_skipped_because_of_a_need_of_a_need(self) -> None:
        middle = a_job("middle", id=JobId(11), state=JobState.SKIPPED, waits_for=("build-10",))
        explanation = why(
            a_job(state=JobState.SKIPPED, waits_for=("middle",)), middle, build(10, state=JobState.FAILED)
        )
        assert [cause.name for cause in explanation.because] == ["build-10"]

    def test_skipped_because_a_need_did_not_run(self) -> None:
        manual = build(10, state=JobState.MANUAL, allow_failure=True)
        explanation = why(a_job(state=JobState.SKIPPED, waits_for=("build-10",)), manual)
        assert explanation.summary == 'was skipped: because of "build-10" (manual)'

    def test_skipped_because_nothing_failed(self) -> None:
        explanation = why(
            a_job(state=JobState.SKIPPED, by_stage=True, when=When.ON_FAILURE), build(10, state=JobState.SUCCESS)
        )
        assert explanation.summary == "was skipped: it runs only when a job before it fails, and none did"

    def test_canceled(self) -> None:
        assert why(a_job(state=JobState.CANCELED)).summary == "was canceled before it had started"
        assert why(a_job(state=JobState.CANCELED, started_at=NOW)).summary == "was canceled while it ran"

    def test_canceled_because_another_job_failed(self) -> None:
        explanation = why(
            a_job(state=JobState.CANCELED, started_at=NOW),
            build(10, state=JobState.FAILED),
            pipeline={"cancel_on_job_failure": "all"},
        )
        assert (
            explanation.summary
            == 'was canceled while it ran, because "build-10" (failed) failed and its pipeline cancels all jobs then'
        )
        assert [cause.id for cause in explanation.because] == [10]

    def test_a_later_failure_is_not_the_cause_of_a_cancel(self) -> None:
        explanation = why(
            a_job(state=JobState.CANCELED, finished_at=NOW - 9),
            build(10, state=JobState.FAILED, finished_at=NOW),
            pipeline={"cancel_on_job_failure": "all"},
        )
        assert (explanation.summary, explanation.because) == ("was canceled before it had started", ())

    def test_a_retry_does_not_help_if_the_user_is_blocked(self) -> None:
        explanation = why(a_job(state=JobState.FAILED, failure_reason=FailureReason.USER_BLOCKED.value))
        assert explanation.advice == (
            "start a new pipeline as a user who is not blocked; a retry would run as the same user",
        )
