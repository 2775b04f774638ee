import pytest
from msgspec.structs import replace
from tests.support.local_runs import MakeJob, MakeRun

from remuda.localrun.containers import ContainerUse
from remuda.localrun.local_jobs import LocalJobs
from remuda.localrun.render.step_events import StepView
from remuda.localrun.view import build, events, manual_jobs, note_of, unfinished_tags
from remuda.wire.user_api import JobProgress, PipelineProgress

NOW = 1_750_000_000.0


def test_stages_follow_the_file_and_jobs_their_numbers() -> None:
    started = {"name": "script", "event": "started", "time": "2025-06-15T15:06:35.000Z"}
    pipeline = PipelineProgress(
        id=3,
        project_id=1,
        status="running",
        jobs=(
            JobProgress(id=9, name="ship", stage="deploy", stage_index=2, status="created"),
            JobProgress(id=8, name="lint", stage="build", stage_index=1, status="success"),
            JobProgress(
                id=7,
                name="compile",
                stage="build",
                stage_index=1,
                status="running",
                started_at=NOW - 10,
                steps=(started,),
            ),
        ),
    )
    view = build(pipeline, NOW)
    assert [(stage.name, [job.name for job in stage.jobs]) for stage in view.stages] == [
        ("build", ["compile", "lint"]),
        ("deploy", ["ship"]),
    ]
    compile_job = view.jobs[0]
    assert compile_job.steps == (StepView(name="script", status="running", started_at=NOW - 5),)
    assert compile_job.seconds(NOW) == pytest.approx(10)


def test_started_pipelines_are_below_their_trigger_jobs(a_job: MakeJob, a_run: MakeRun) -> None:
    child_run = a_run(a_job("unit", "running"), status="running")
    view = a_run(a_job("build"), a_job("child", "success", downstream=child_run))
    assert [name for name, _, _ in view.all_jobs()] == ["build", "child", "child > unit"]
    assert [each.status for each in view.pipelines()] == ["success", "running"]
    assert not view.is_over()
    assert a_run(a_job("child", downstream=a_run(a_job("unit", "failed"), status="failed"))).is_over()


@pytest.mark.parametrize(
    ("status", "fields", "note"),
    [
        ("created", {"waits_for": ("a", "b")}, "waits for a, b"),
        ("created", {"waits_for": ("a", "b", "c", "d")}, "waits for a, b, c and more"),
        ("created", {}, ""),
        ("pending", {}, "waits for a free slot"),
        ("scheduled", {"starts_at": NOW + 90}, "delayed, starts in 1m 30s"),
        ("waiting_for_resource", {"resource_group": "live"}, "waits for resource group live, which another job has"),
        ("manual", {}, "waits for a person; --manual 'x' starts it"),
        (
            "failed",
            {"failure_reason": "data_integrity_failure", "failure_message": "lost"},
            "data_integrity_failure, lost",
        ),
        (
            "failed",
            {"failure_reason": "runner_configuration_error", "failure_message": "no engine at x.y. Start one. Or not"},
            "runner_configuration_error, no engine at x.y",
        ),
        ("failed", {"failure_reason": "script_failure", "failure_message": "step"}, "script_failure"),
        ("success", {}, ""),
    ],
)
def test_note_of_a_job_explains_its_status(a_job: MakeJob, status: str, fields: dict[str, object], note: str) -> None:
    assert note_of(a_job("x", status, **fields), NOW) == note


def test_a_manual_job_of_a_cell_names_the_command_that_starts_it(a_job: MakeJob) -> None:
    note = note_of(a_job("x", "manual", id=7, is_local=False), NOW)
    assert note == "waits for a person; `remuda job play 7` starts it"


def test_tags_are_those_of_jobs_that_still_need_a_runner(a_job: MakeJob, a_run: MakeRun) -> None:
    child_run = a_run(a_job("unit", "pending", tags=("gpu",)), status="running")
    view = a_run(a_job("build", tags=("old",)), a_job("child", "running", downstream=child_run))
    assert unfinished_tags(view) == {"gpu"}
    manual = a_job("ask", "manual")
    assert [job.id for _, _, job in manual_jobs(a_run(manual, a_job("b")))] == [manual.id]


def test_a_job_that_ran_between_two_views_gives_both_events(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("build", "created", id=1))
    after = a_run(a_job("build", "success", id=1, started_at=NOW - 3, finished_at=NOW - 1))
    assert [(event.status, event.at, event.seconds) for event in events(before, after)] == [
        ("running", NOW - 3, None),
        ("success", NOW - 1, 2.0),
    ]


def test_waiting_is_no_event(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("build", "created", id=1))
    assert events(None, before) == []
    assert events(before, a_run(a_job("build", "pending", id=1))) == []


def test_an_unchanged_view_gives_no_event(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("build", "running"), a_job("lint", "failed"))
    assert events(view, view) == []


def test_a_retry_is_an_event(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("flaky", "running", id=1))
    after = a_run(a_job("flaky", "pending", id=5))
    assert [(event.status, event.note) for event in events(before, after)] == [("retrying", "as job 5")]
    started = a_run(a_job("flaky", "running", id=5))
    assert [event.status for event in events(before, started)] == ["retrying", "running"]


@pytest.mark.parametrize(("coverage", "note"), [(87.5, "coverage 87.5%"), (80.0, "coverage 80%"), (0.0, "coverage 0%")])
def test_the_note_of_a_job_with_coverage(a_job: MakeJob, coverage: float, note: str) -> None:
    assert note_of(a_job("x", "success", coverage=coverage), NOW) == note
    failed = a_job("x", "failed", failure_reason="script_failure", exit_code=1, coverage=coverage)
    assert note_of(failed, NOW) == f"script_failure, exit code 1, {note}"


def test_the_note_names_an_ignored_image_and_services_that_are_missing(a_job: MakeJob) -> None:
    warnings = ("image python:3.12 ignored", "service redis:7 not started")
    for status, before in (("running", ""), ("success", ""), ("failed", "script_failure, "), ("canceled", "")):
        job = a_job("x", status, warnings=warnings, failure_reason="script_failure")
        assert note_of(job, NOW) == f"{before}image python:3.12 ignored, service redis:7 not started"


def test_what_the_manager_reported_is_found_by_the_id_of_the_job() -> None:
    use = ContainerUse(image="python:3.12", services=(), is_ignored=False)
    job = JobProgress(id=7, name="a", stage="test", status="running")
    progress = PipelineProgress(id=1, project_id=1, status="running", jobs=(job, replace(job, id=8, name="b")))
    reports = LocalJobs()
    reports.note_start(7, {"name": "python:3.12"}, [])
    reports.note_log(8, 0, b"one\ntwo\n")
    one, two = build(progress, NOW, reports).jobs
    assert (one.containers, one.last_lines) == (use, ())
    assert (two.containers, two.last_lines) == (None, ("one", "two"))


def test_the_note_of_a_failed_job(a_job: MakeJob) -> None:
    job = a_job("lint", "failed", failure_reason="script_failure", exit_code=3, allow_failure=True)
    assert note_of(job, NOW) == "script_failure, exit code 3, allowed to fail"


def test_a_skipped_job_is_one_event(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("ship", "created", id=1))
    after = a_run(a_job("ship", "skipped", id=1))
    assert [event.status for event in events(before, after)] == ["skipped"]


def test_a_blocking_manual_job_ends_the_run(a_job: MakeJob, a_run: MakeRun) -> None:
    assert a_run(a_job("ask", "manual"), status="manual").is_over()
    assert not a_run(a_job("ask", "running"), status="running").is_over()
