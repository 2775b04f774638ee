"""The example pipeline `nightly` in a real cell: schedules and trigger tokens."""

from typing import Any

QUICK = {"quick tests": "success"}
LONG = dict.fromkeys(
    [*(f"long tests: [{suite}]" for suite in ("imports", "exports", "reports")), "against a database", "audit"],
    "success",
)


def play_schedule(work: Any, cell: Any, **variables: str) -> Any:
    """Create a schedule with these variables, play it, and wait for its pipeline."""
    schedule = work.project.pipelineschedules.create({"description": "Every night", "ref": "main", "cron": "0 3 * * *"})
    for key, value in variables.items():
        schedule.variables.create({"key": key, "value": value})
    schedule.play()
    cell.until(lambda: schedule.pipelines.list(get_all=True), "the schedule has started a pipeline")
    [pipeline] = schedule.pipelines.list(get_all=True)
    return cell.wait_for_pipeline(work.project, pipeline.id)


def test_a_push_runs_the_quick_tests(clone: Any) -> None:
    outcome = clone("nightly").push_and_wait()
    assert (outcome.status, outcome.pipeline.name) == ("success", "Quick checks")
    assert outcome.statuses == QUICK
    assert "fetching" in outcome.trace("quick tests")


def test_the_nightly_schedule_runs_everything(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    outcome = play_schedule(work, cell, SCHEDULE="nightly")
    assert (outcome.status, outcome.pipeline.source) == ("success", "schedule")
    assert outcome.pipeline.name == "Scheduled: nightly"
    assert outcome.statuses == QUICK | LONG | {"tell of failures": "skipped", "last word": "success"}
    assert outcome.output("against a database") == ["database at sqlite: good"]
    assert "dependency_scanning" in outcome.artifact_types("audit")


def test_a_failed_weekly_pipeline_runs_the_notification_job(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    outcome = play_schedule(work, cell, SCHEDULE="weekly", SIMULATE_FAILURE="exports")
    assert outcome.status == "failed", outcome.statuses
    assert outcome.statuses == QUICK | LONG | {
        "long tests: [exports]": "failed",
        "against a database": "skipped",
        "clean up": "skipped",
        "tell of failures": "success",
        "tell of successes": "skipped",
        "last word": "success",
    }
    assert outcome.files("tell of failures") == {
        "message.txt": f"the weekly pipeline {outcome.pipeline.id} failed\n",
    }


def test_a_trigger_token_starts_the_import(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    token = work.project.triggers.create({"description": "warehouse"}).token
    pipeline = work.project.trigger_pipeline("main", token, {"IMPORT_SOURCE": "warehouse"})
    outcome = cell.wait_for_pipeline(work.project, pipeline.id)
    assert (outcome.status, outcome.pipeline.source) == ("success", "trigger")
    assert outcome.pipeline.name == "Import of warehouse"
    assert outcome.statuses == {"import": "success"}
    assert outcome.output("import") == ["importing from warehouse"]
