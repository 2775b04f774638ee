from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.view import JobView, RunView, StageView, StepView, build, duration, events, moment, note_of, rows
from remuda.wire.user_client import JobInfo, PipelineInfo, PipelineOfJob

NOW = 1_750_000_000.0
STATUSES = ("created", "pending", "running", "canceling", "success", "failed", "canceled", "skipped", "manual")

MakeRun = Callable[..., RunView]
MakeJob = Callable[..., JobView]


def test_stages_follow_the_file_and_jobs_their_numbers() -> None:
    pipeline = PipelineInfo(id=3, project_id=1, status="running", sha="a" * 40, ref="main")
    of = PipelineOfJob(id=3, project_id=1)
    jobs = [
        JobInfo(id=9, name="ship", stage="deploy", status="created", pipeline=of),
        JobInfo(id=8, name="lint", stage="build", status="success", pipeline=of),
        JobInfo(
            id=7, name="compile", stage="build", status="running", pipeline=of, started_at="2025-06-15T15:06:30.000Z"
        ),
    ]
    step = StepView(name="script", status="running", started_at=NOW - 5)
    view = build(pipeline, jobs, {7: (step,)}, (".pre", "build", "deploy", ".post"), NOW)
    assert [(stage.name, [job.name for job in stage.jobs]) for stage in view.stages] == [
        ("build", ["compile", "lint"]),
        ("deploy", ["ship"]),
    ]
    compile_job = view.jobs[0]
    assert compile_job.steps == (step,)
    assert compile_job.seconds(NOW) == pytest.approx(10)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (1.24, "1.2s"),
        (59.9, "59.9s"),
        (59.96, "1m 00s"),
        (123.4, "2m 03s"),
        (3599.7, "1h 00m"),
        (7500, "2h 05m"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_moments() -> None:
    assert moment("2025-06-15T15:06:40.000Z") == NOW
    assert moment(None) is None


def test_a_job_that_ran_between_two_looks_gives_both_events(a_job: MakeJob, a_run: MakeRun) -> None:
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


def test_the_same_look_twice_is_no_event(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("build", "running"), a_job("lint", "failed"))
    assert events(view, view) == []


def test_a_retry_is_told(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("flaky", "running", id=1))
    after = a_run(a_job("flaky", "pending", id=5))
    assert [(event.status, event.note) for event in events(before, after)] == [("retrying", "as job 5")]


def test_a_failure_says_why(a_job: MakeJob) -> None:
    job = a_job("lint", "failed", failure_reason="script_failure", exit_code=3, allow_failure=True)
    assert note_of(job) == "script_failure, exit code 3, allowed to fail"


def test_a_skipped_job_is_told_once(a_job: MakeJob, a_run: MakeRun) -> None:
    before = a_run(a_job("ship", "created", id=1))
    after = a_run(a_job("ship", "skipped", id=1))
    assert [event.status for event in events(before, after)] == ["skipped"]


def test_running_jobs_show_their_steps_while_there_is_room(a_job: MakeJob, a_run: MakeRun) -> None:
    steps = (
        StepView(name="checkout", status="success", started_at=NOW - 3, finished_at=NOW - 2),
        StepView(name="script", status="running", started_at=NOW - 2),
    )
    view = a_run(a_job("build", "running", steps=steps), a_job("lint", "success", steps=steps))
    assert [(row.depth, row.name) for row in rows(view, 10)] == [
        (0, "test"),
        (1, "build"),
        (2, "checkout"),
        (2, "script"),
        (1, "lint"),
    ]
    assert [row.name for row in rows(view, 3)] == ["test", "build", "lint"]
    assert [(row.name, row.note) for row in rows(view, 2)] == [("test", "1 success"), ("build", "")]
    assert [(row.name, row.note) for row in rows(view, 1)] == [("test", "1 running, 1 success")]


def test_an_allowed_failure_is_a_warning_and_does_not_colour_its_stage(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("lint", "failed", allow_failure=True), a_job("build", "success"))
    assert [row.status for row in rows(view, 10)] == ["success", "warning", "success"]


def test_a_blocking_manual_job_ends_the_run(a_job: MakeJob, a_run: MakeRun) -> None:
    assert a_run(a_job("ask", "manual"), status="manual").is_over()
    assert not a_run(a_job("ask", "running"), status="running").is_over()


jobs_strategy = st.lists(
    st.builds(
        JobView,
        id=st.integers(1, 10**6),
        name=st.text(min_size=1, max_size=20),
        stage=st.just("s"),
        status=st.sampled_from(STATUSES),
        allow_failure=st.booleans(),
        started_at=st.none() | st.just(NOW - 2),
        steps=st.lists(st.builds(StepView, name=st.just("x"), status=st.just("running")), max_size=3).map(tuple),
    ),
    max_size=30,
)


@given(stages=st.lists(jobs_strategy, max_size=5), height=st.integers(1, 60))
def test_the_rows_always_fit(stages: list[list[JobView]], height: int) -> None:
    view = RunView(
        pipeline_id=1,
        status="running",
        now=NOW,
        stages=tuple(StageView(name=str(number), jobs=tuple(jobs)) for number, jobs in enumerate(stages)),
    )
    assert len(rows(view, height)) <= height
