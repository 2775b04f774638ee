import json

import pytest
from tests.support.local_runs import MakeJob, MakeRun

from remuda.lib.exits import Exit
from remuda.localrun import report
from remuda.localrun.junit import TestFailure, TestReport
from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.words import plural
from remuda.localrun.report import Outcome

NOW = 1_750_000_000.0


STEPS = (
    StepView(name="checkout", path="/checkout", status="success", started_at=NOW - 3, finished_at=NOW - 2.5),
    StepView(name="script", status="failure", started_at=NOW - 2.5, finished_at=NOW - 1.2, exit_code=3),
)


TESTS = TestReport(
    job="unit",
    tests=4,
    failed=1,
    errors=2,
    failures=(
        TestFailure(suite="suite", name="test_a", kind="failed", message="first\n\x1b[31msecond", file="a.py", line=3),
    ),
)


@pytest.mark.parametrize(
    ("status", "code"),
    [("success", 0), ("skipped", 0), ("failed", 1), ("canceled", 1), ("manual", 1)],
)
def test_the_exit_code_follows_the_pipeline(a_run: MakeRun, status: str, code: int) -> None:
    assert Outcome(view=a_run(status=status)).exit == code
    assert Outcome(view=a_run(status=status), interrupted=True).exit is Exit.INTERRUPTED


def test_time_outside_all_steps_is_overhead(a_job: MakeJob) -> None:
    spent = report.time_by_step(a_job(steps=STEPS), NOW)
    assert spent == pytest.approx({"script": 1.3, "checkout": 0.5, "overhead": 0.2})
    assert list(spent) == ["script", "checkout", "overhead"]


def test_a_step_without_an_end_lasted_no_longer_than_its_job(a_job: MakeJob) -> None:
    lost = StepView(name="script", status="running", started_at=NOW - 2.5)
    assert report.time_by_step(a_job("a", "failed", steps=(lost,)), NOW + 60) == pytest.approx(
        {"script": 1.5, "overhead": 0.5}
    )


def test_a_job_that_never_ran_spent_nothing(a_job: MakeJob) -> None:
    assert report.time_by_step(a_job(status="skipped"), NOW) == {}


def test_the_summary_has_a_line_for_each_job(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(
        a_job("lint", "failed", steps=STEPS, waiting_seconds=0.25, failure_reason="script_failure", exit_code=3),
        a_job("ship", "skipped"),
        status="failed",
    )
    first, second = report.lines(view)
    assert (first.job, first.status, first.waited, first.ran) == ("lint", "failed", "0.2s", "2.0s")
    assert first.where == "script 1.3s, checkout 0.5s, overhead 0.2s"
    assert first.note == "script_failure, exit code 3"
    assert (second.status, second.waited, second.ran, second.where) == ("skipped", "", "", "")
    assert report.where_time_went(view) == "script 1.3s, checkout 0.5s, waiting 0.2s, overhead 0.2s"


def test_the_headline_counts_and_times(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("a", created_at=NOW - 4), a_job("b", "failed", created_at=NOW - 4), status="failed")
    assert report.headline(view) == "pipeline failed in 3.0s: 1 success, 1 failed"


def test_the_headline_of_a_blocked_pipeline_names_the_manual_job(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(a_job("deploy", "manual"), status="manual")
    assert "blocked by a manual job (deploy), which --manual 'deploy' starts" in report.headline(view)


def test_a_failed_downstream_pipeline_is_reported(a_job: MakeJob, a_run: MakeRun) -> None:
    child_run = a_run(a_job("unit", "failed"), status="failed")
    view = a_run(a_job("child", downstream=child_run))
    assert report.headline(view).endswith(": 1 success, 1 failed; 1 pipeline that it started failed")
    document = report.document(Outcome(view=view))
    assert document["exit_code"] == 0
    assert document["jobs"][0]["downstream"]["jobs"][0]["status"] == "failed"


def test_failed_tests_are_shown_with_their_place() -> None:
    broken = TestReport(job="lint", problem="it is no XML")
    assert list(report.lines_of_tests([TESTS, broken])) == [
        "tests of unit: 1 passed, 1 failed, 2 errors",
        "tests of lint: 0 passed, the report could not be read completely: it is no XML",
        "",
        "failed in unit: suite: test_a (a.py:3)",
        "  first",
        "  second",
        "\nand 2 more; --output json and --artifacts have them",
    ]


def test_the_document_is_json_with_everything_a_program_needs(a_job: MakeJob, a_run: MakeRun) -> None:
    view = a_run(
        a_job("lint", "failed", id=4, steps=STEPS, waiting_seconds=0.2, exit_code=3, failure_reason="script_failure"),
        status="failed",
    )
    document = json.loads(json.dumps(report.document(Outcome(view=view, tails={4: ["boom"]}, tests=[TESTS]))))
    assert document["version"] == 1
    assert document["status"] == "failed"
    assert document["exit_code"] == 1
    assert document["jobs"] == [
        {
            "id": 4,
            "name": "lint",
            "stage": "test",
            "status": "failed",
            "allow_failure": False,
            "waiting": 0.2,
            "duration": 2.0,
            "failure_reason": "script_failure",
            "exit_code": 3,
            "coverage": None,
            "image": None,
            "services": [],
            "image_and_services_ignored": False,
            "log_tail": ["boom"],
            "steps": [
                {"name": "checkout", "path": "/checkout", "status": "success", "duration": 0.5, "exit_code": None},
                {"name": "script", "path": "", "status": "failure", "duration": 1.3, "exit_code": 3},
            ],
        }
    ]
    (tests,) = document["tests"]
    assert (tests["job"], tests["total"], tests["passed"], tests["problem"]) == ("unit", 4, 1, None)
    assert tests["failures"][0]["line"] == 3


def test_plural() -> None:
    assert [plural(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
