from typing import Any

QUICK = {"quick tests": "success"}
LONG = dict.fromkeys(
    [*(f"long tests: [{suite}]" for suite in ("imports", "exports", "reports")), "against a database", "audit"],
    "success",
)


def scheduled(work: Any, cell: Any, **variables: str) -> Any:
    """What a schedule with these variables comes to."""
    schedule = work.project.pipelineschedules.create({"description": "Every night", "ref": "main", "cron": "0 3 * * *"})
    for key, value in variables.items():
        schedule.variables.create({"key": key, "value": value})
    schedule.play()
    cell.until(lambda: schedule.pipelines.list(get_all=True), "the schedule has started a pipeline")
    [pipeline] = schedule.pipelines.list(get_all=True)
    return cell.outcome(work.project, pipeline.id)


def test_a_push_gets_the_quick_tests(clone: Any) -> None:
    ended = clone("nightly").pushed()
    assert (ended.status, ended.pipeline.name) == ("success", "Quick checks")
    assert ended.states == QUICK
    assert "fetching" in ended.trace("quick tests")


def test_the_nightly_schedule_gets_everything(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    ended = scheduled(work, cell, SCHEDULE="nightly")
    assert (ended.status, ended.pipeline.source) == ("success", "schedule")
    assert ended.pipeline.name == "Scheduled: nightly"
    assert ended.states == QUICK | LONG | {"tell of failures": "skipped", "last word": "success"}
    assert ended.said("against a database") == ["database at sqlite: good"]
    assert "dependency_scanning" in ended.kinds("audit")


def test_somebody_is_told_when_the_weekly_one_fails(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    ended = scheduled(work, cell, SCHEDULE="weekly", SIMULATE_FAILURE="exports")
    assert ended.status == "failed", ended.states
    assert ended.states == QUICK | LONG | {
        "long tests: [exports]": "failed",
        "against a database": "skipped",
        "clean up": "skipped",
        "tell of failures": "success",
        "tell of successes": "skipped",
        "last word": "success",
    }
    assert ended.files("tell of failures") == {
        "message.txt": f"the weekly pipeline {ended.pipeline.id} failed\n",
    }


def test_a_trigger_token_starts_the_import(clone: Any, cell: Any) -> None:
    work = clone("nightly")
    work.push(quietly=True)
    token = work.project.triggers.create({"description": "warehouse"}).token
    started = work.project.trigger_pipeline("main", token, {"IMPORT_SOURCE": "warehouse"})
    ended = cell.outcome(work.project, started.id)
    assert (ended.status, ended.pipeline.source) == ("success", "trigger")
    assert ended.pipeline.name == "Import of warehouse"
    assert ended.states == {"import": "success"}
    assert ended.said("import") == ["importing from warehouse"]
