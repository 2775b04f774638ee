from hypothesis import given
from hypothesis import strategies as st
from tests.support.local_runs import MakeJob, MakeRun

from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.tree_rows import rows
from remuda.localrun.view import JobView, RunView, StageView

NOW = 1_750_000_000.0
STATUSES = ("created", "pending", "running", "canceling", "success", "failed", "canceled", "skipped", "manual")


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


def test_nested_steps_are_drawn_while_their_parent_runs(a_job: MakeJob, a_run: MakeRun) -> None:
    steps = (
        StepView(name="setup", status="success"),
        StepView(name="fetch", status="success", depth=1),
        StepView(name="container", status="running"),
        StepView(name="open", status="success", depth=1),
        StepView(name="lint", status="skipped", depth=1),
        StepView(name="script", status="running", depth=1),
        StepView(name="upload", status="running"),
    )
    drawn_rows = [(row.depth, row.name) for row in rows(a_run(a_job("build", "running", steps=steps)), 20)]
    assert drawn_rows[2:] == [(2, "setup"), (2, "container"), (3, "open"), (3, "script"), (2, "upload")]


def test_an_allowed_failure_is_a_warning_and_does_not_colour_its_stage(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("lint", "failed", allow_failure=True), a_job("build", "success"))
    assert [row.status for row in rows(view, 10)] == ["success", "warning", "success"]


def test_a_started_pipeline_is_drawn_below_its_trigger_job(a_job: MakeJob, a_run: MakeRun) -> None:
    child_run = a_run(a_job("unit", "running"), status="running")
    view = a_run(a_job("child", "running", downstream=child_run), a_job("last", "created", waits_for=("child",)))
    assert [(row.depth, row.kind, row.name, row.note) for row in rows(view, 10)] == [
        (0, "stage", "test", ""),
        (1, "job", "child", ""),
        (2, "stage", "test", ""),
        (3, "job", "unit", ""),
        (1, "job", "last", "waits for child"),
    ]


def test_the_only_running_job_shows_more_of_its_log(a_job: MakeJob, a_run: MakeRun) -> None:
    steps = (StepView(name="script", status="running", started_at=NOW - 2),)
    chain = a_job("build", "running", steps=steps, last_lines=("one", "two", "three")), a_job("test", "created")

    def names(height: int, *more: JobView) -> list[str]:
        return [
            f"{row.name}: {row.last_line}" if row.last_line else row.name for row in rows(a_run(*chain, *more), height)
        ]

    assert names(20) == ["test", "build", "script", "one", "two", "three", "test"]
    # The last lines, if there is no room for all; with steps if they fit.
    assert names(6) == ["test", "build", "script", "two", "three", "test"]
    assert names(4) == ["test", "build: three", "script", "test"]
    # A job that runs beside it takes the room.
    assert names(20, a_job("lint", "running", last_lines=("x", "y"))) == [
        *("test", "build: three", "script", "test", "lint: y"),
    ]


def test_a_job_of_a_downstream_pipeline_shows_more_of_its_log(a_job: MakeJob, a_run: MakeRun) -> None:
    child = a_run(a_job("unit", "running", last_lines=("one", "two")), status="running")
    view = a_run(a_job("child", "running", downstream=child))
    assert [(row.depth, row.name) for row in rows(view, 10)][3:] == [(3, "unit"), (4, "one"), (4, "two")]


jobs_strategy = st.lists(
    st.builds(
        JobView,
        id=st.integers(1, 10**6),
        name=st.text(min_size=1, max_size=20),
        stage=st.just("s"),
        status=st.sampled_from(STATUSES),
        allow_failure=st.booleans(),
        started_at=st.none() | st.just(NOW - 2),
        last_lines=st.lists(st.just("log"), max_size=10).map(tuple),
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
