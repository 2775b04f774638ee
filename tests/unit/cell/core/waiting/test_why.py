"""What is said of a job in each of its states."""

from typing import Any

import pytest

from remuda.cell.core.waiting.why import NAMED, Situation, explain
from remuda.cell.values import Job
from remuda.model.job import FailureReason, JobId, JobState, PipelineId, RunnerId
from remuda.model.progress import When
from remuda.testing.builders import NOW, a_family, a_job, a_pipeline, a_runner
from remuda.wire.explanations import JobWhy


def why(job: Job, *others: Job, pipeline: dict[str, Any] | None = None, **given: Any) -> JobWhy:
    family = a_family([*others, job], **(pipeline or {}))
    return explain(Situation(job=job, family=family, project="acme/shop", now=NOW, **given))


def build(number: int = 10, **given: Any) -> Job:
    values = {"id": JobId(number), "stage": "build", "stage_index": 0, "state": JobState.RUNNING}
    return a_job(f"build-{number}", **(values | given))


@pytest.mark.parametrize("state", JobState)
def test_every_state_has_words(state: JobState) -> None:
    told = why(a_job(state=state, runner_id=RunnerId(3)))
    assert told.summary
    assert told.state == state.value
    assert told.project == "acme/shop"


class TestWaitingForJobs:
    def test_by_stage(self) -> None:
        told = why(
            a_job(by_stage=True), build(10), build(11, state=JobState.PENDING), build(12, state=JobState.SUCCESS)
        )
        assert told.summary == 'waits for 2 jobs of earlier stages: "build-10" (running), "build-11" (pending)'
        assert [(wait.kind, wait.stage or (wait.job and wait.job.name)) for wait in told.waits_for] == [
            ("stage", "build"),
            ("job", "build-10"),
            ("job", "build-11"),
        ]
        assert told.waits_for[0].count == 2

    def test_by_needs(self) -> None:
        told = why(a_job(waits_for=("build-11",)), build(10), build(11))
        assert told.summary == 'waits for 1 job that it needs: "build-11" (running)'
        assert [wait.kind for wait in told.waits_for] == ["job"]

    def test_only_the_first_few_are_named(self) -> None:
        told = why(a_job(by_stage=True), *(build(number) for number in range(10, 40)))
        assert sum(wait.kind == "job" for wait in told.waits_for) == NAMED
        assert told.not_named == 30 - NAMED
        assert "and 27 more" in told.summary

    def test_behind_a_manual_job_a_person_is_named(self) -> None:
        told = why(a_job(by_stage=True), build(10, state=JobState.MANUAL))
        assert told.waits_for[-1].kind == "person"
        assert told.waits_for[-1].how == "POST /api/v4/projects/1/jobs/10/play"
        assert told.advice == ('start "build-10" by hand: POST /api/v4/projects/1/jobs/10/play',)

    def test_nobody_waits_for_a_manual_job_that_need_not_be_started(self) -> None:
        told = why(a_job(by_stage=True), build(10, state=JobState.MANUAL, allow_failure=True))
        assert told.waits_for[0].kind == "cell"


class TestOtherWaits:
    def test_for_a_resource_group(self) -> None:
        holder = a_job("deploy", id=JobId(7), pipeline_id=PipelineId(3), state=JobState.RUNNING)
        told = why(a_job(state=JobState.WAITING_FOR_RESOURCE, resource_group="prod"), holder=holder)
        assert told.summary == 'waits for the resource group "prod", which job 7 "deploy" of pipeline 3 has (running)'
        assert told.waits_for[0].job is not None
        assert told.waits_for[0].job.pipeline_id == 3

    def test_for_a_time(self) -> None:
        told = why(a_job(state=JobState.SCHEDULED, scheduled_at=NOW + 40))
        assert told.summary == "is delayed until 2025-06-15T15:07:20.000Z, in 40 s"
        assert told.waits_for[0].until == NOW + 40

    def test_for_a_person(self) -> None:
        told = why(a_job(state=JobState.MANUAL))
        assert told.summary == "waits for a person to start it, and later stages of its pipeline wait for it"
        assert told.advice == ("start it: POST /api/v4/projects/1/jobs/1/play",)
        assert why(a_job(state=JobState.MANUAL, allow_failure=True)).summary == "waits for a person to start it"

    def test_for_a_downstream_pipeline(self) -> None:
        job = a_job(state=JobState.RUNNING, is_trigger=True)
        assert why(job).waits_for[0].kind == "cell"
        told = why(job, downstream=a_pipeline(id=PipelineId(8), status="running"), downstream_project="acme/lib")
        assert told.summary == "waits for pipeline 8 of acme/lib, which is running"
        assert told.waits_for[0].pipeline_id == 8

    def test_for_the_runner_that_got_it(self) -> None:
        job = a_job(state=JobState.LEASED, runner_id=RunnerId(3), system_id="s_1", lease_until=NOW + 60, two_phase=True)
        told = why(job, runner=a_runner(id=RunnerId(3), description="big"))
        assert told.summary == (
            'was handed out, and waits for runner 3 "big" (s_1) to start it; without a word it waits again from '
            "2025-06-15T15:07:40.000Z on"
        )

    def test_for_the_first_word_of_a_runner_that_does_not_say_when_it_starts(self) -> None:
        job = a_job(state=JobState.LEASED, runner_id=RunnerId(3), system_id="s_1", leased_at=NOW - 2)
        told = why(job, runner=a_runner(id=RunnerId(3), description="big"))
        assert told.summary == 'runs on runner 3 "big" (s_1), which got it and has not said anything of it yet'
        assert (told.since, told.waits_for) == (NOW - 2, ())

    def test_a_job_of_a_child_pipeline_names_its_trigger_job(self) -> None:
        told = why(a_job(), upstream=a_job("go", id=JobId(4), is_trigger=True, state=JobState.RUNNING))
        assert told.upstream is not None
        assert (told.upstream.id, told.upstream.name) == (4, "go")


class TestEnds:
    def test_a_failure(self) -> None:
        told = why(a_job(state=JobState.FAILED, failure_reason="script_failure", exit_code=2))
        assert told.summary == (
            "failed: script failure, exit code 2; it is a failure of the job's own script or configuration"
        )
        assert told.failure is not None
        assert (told.failure.reason, told.failure.fault, told.failure.exit_code) == ("script_failure", "user", 2)
        assert told.advice == ("read its log: remuda job log 1",)

    def test_a_failure_of_somebody_else(self) -> None:
        reason = FailureReason.RUNNER_SYSTEM_FAILURE.value
        told = why(a_job(state=JobState.FAILED, failure_reason=reason, failure_message="disk full"))
        assert told.failure is not None
        assert (told.failure.fault, told.failure.message) == ("runner", "disk full")

    def test_a_reason_nobody_knows(self) -> None:
        told = why(a_job(state=JobState.FAILED, failure_reason="new_reason_of_2030"))
        assert told.failure is not None
        assert told.failure.reason == "new_reason_of_2030"

    def test_a_failure_that_was_tried_again(self) -> None:
        job = a_job(state=JobState.FAILED, failure_reason="script_failure", retried=True)
        family = a_family([a_job(id=JobId(5), state=JobState.PENDING)])
        told = explain(Situation(job=job, family=family, project="acme/shop", now=NOW))
        assert told.tried_again_as == 5
        assert told.summary.endswith("it was tried again as job 5")

    def test_skipped_because_of_an_earlier_stage(self) -> None:
        told = why(a_job(state=JobState.SKIPPED, by_stage=True), build(10, state=JobState.FAILED), build(11))
        assert told.summary == 'was skipped: because of "build-10" (failed)'
        assert [cause.name for cause in told.because] == ["build-10"]

    def test_skipped_because_of_a_need_of_a_need(self) -> None:
        middle = a_job("middle", id=JobId(11), state=JobState.SKIPPED, waits_for=("build-10",))
        told = why(a_job(state=JobState.SKIPPED, waits_for=("middle",)), middle, build(10, state=JobState.FAILED))
        assert [cause.name for cause in told.because] == ["build-10"]

    def test_skipped_because_a_need_did_not_run(self) -> None:
        manual = build(10, state=JobState.MANUAL, allow_failure=True)
        told = why(a_job(state=JobState.SKIPPED, waits_for=("build-10",)), manual)
        assert told.summary == 'was skipped: because of "build-10" (manual)'

    def test_skipped_because_nothing_failed(self) -> None:
        told = why(
            a_job(state=JobState.SKIPPED, by_stage=True, when=When.ON_FAILURE), build(10, state=JobState.SUCCESS)
        )
        assert told.summary == "was skipped: it runs only when a job before it fails, and none did"

    def test_canceled(self) -> None:
        assert why(a_job(state=JobState.CANCELED)).summary == "was canceled before it had started"
        assert why(a_job(state=JobState.CANCELED, started_at=NOW)).summary == "was canceled while it ran"

    def test_canceled_because_another_job_failed(self) -> None:
        told = why(
            a_job(state=JobState.CANCELED, started_at=NOW),
            build(10, state=JobState.FAILED),
            pipeline={"cancel_on_job_failure": "all"},
        )
        assert (
            told.summary == 'was canceled while it ran, because "build-10" (failed) failed and its pipeline stops then'
        )
        assert [cause.id for cause in told.because] == [10]

    def test_a_failure_that_came_later_is_not_why_it_was_canceled(self) -> None:
        told = why(
            a_job(state=JobState.CANCELED, finished_at=NOW - 9),
            build(10, state=JobState.FAILED, finished_at=NOW),
            pipeline={"cancel_on_job_failure": "all"},
        )
        assert (told.summary, told.because) == ("was canceled before it had started", ())

    def test_who_is_blocked_stays_the_one_who_started_it(self) -> None:
        told = why(a_job(state=JobState.FAILED, failure_reason=FailureReason.USER_BLOCKED.value))
        assert told.advice == ("start a new pipeline as somebody who may; a retry would be of the same person",)
