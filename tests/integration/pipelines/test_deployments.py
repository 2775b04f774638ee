"""The example pipeline `deployments` in a real cell: manual approval, resource groups, delayed jobs and rollback."""

from pathlib import Path
from typing import Any


def test_an_approved_release_is_deployed_to_production(clone: Any, cell: Any, tmp_path: Path) -> None:
    root = tmp_path / "servers"
    work = clone("deployments")
    work.push(quietly=True)
    work.project.variables.create({"key": "DEPLOY_ROOT", "value": str(root)})
    sha = work.commit("Deploy this")
    waiting = work.push_and_wait()
    assert waiting.status == "manual", waiting.statuses
    assert {name: state for name, state in waiting.statuses.items() if state != "created"} == {
        "build": "success",
        "staging": "success",
        "migrate staging": "success",
        "smoke staging": "failed",
        "stop staging": "manual",
        "approve": "manual",
    }
    attempts = waiting.pipeline.jobs.list(get_all=True, include_retried=True)
    assert sorted(job.status for job in attempts if job.name == "migrate staging") == ["failed", "success"]
    assert (root / "staging/schema").read_text() == "migrated\n"
    assert waiting.jobs["smoke staging"].allow_failure

    waiting.jobs["approve"].play()
    outcome = cell.wait_for_pipeline(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert outcome.status == "success", outcome.statuses
    assert {name: state for name, state in outcome.statuses.items() if state != "success"} == {
        "smoke staging": "failed",
        "stop staging": "manual",
        "roll back": "skipped",
    }
    assert outcome.output("approve") == ["approved by root"]
    log_lines = (root / "log").read_text().splitlines()
    assert log_lines[:3] == [f"{name} {sha[:8]}" for name in ("staging", "production/canary", "production/all")]
    assert sorted(log_lines[3:]) == [f"production/{name} {sha[:8]}" for name in ("east", "west")]
    first, second = sorted(
        (outcome.jobs[f"region {name}"] for name in ("east", "west")), key=lambda job: job.started_at
    )
    assert first.finished_at <= second.started_at

    outcome.jobs["stop staging"].play()
    cell.until(lambda: not (root / "staging").exists(), "staging is stopped")


def test_a_delayed_job_waits_until_it_is_played(clone: Any, cell: Any, tmp_path: Path) -> None:
    work = clone("deployments")
    work.push(quietly=True)
    variables = {"DEPLOY_ROOT": str(tmp_path / "servers"), "LOAD_TEST": "yes"}
    work.push("main:feature", quietly=True)
    waiting = work.start_and_wait(ref="feature", variables=variables, rest=frozenset({"scheduled"}))
    assert waiting.statuses["load test"] == "scheduled"
    assert waiting.statuses["summary"] == "created"
    waiting.jobs["load test"].play()
    outcome = cell.wait_for_pipeline(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert outcome.status == "success", outcome.statuses
    assert (outcome.statuses["load test"], outcome.statuses["summary"]) == ("success", "success")
    assert not {"approve", "canary", "production"} & outcome.statuses.keys()


def test_a_failed_production_deployment_is_rolled_back(clone: Any, cell: Any, tmp_path: Path) -> None:
    work = clone("deployments")
    work.push(quietly=True)
    root = tmp_path / "servers"
    work.project.variables.create({"key": "DEPLOY_ROOT", "value": str(root)})
    waiting = work.start_and_wait()
    (root / ".lock-regions").mkdir()
    waiting.jobs["approve"].play()
    outcome = cell.wait_for_pipeline(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert outcome.status == "failed", outcome.statuses
    assert (outcome.statuses["region east"], outcome.statuses["region west"]) == ("failed", "failed")
    assert "rolling back from production/all" in outcome.output("roll back")[0]
    assert outcome.statuses["summary"] == "success"
