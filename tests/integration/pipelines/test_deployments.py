from pathlib import Path
from typing import Any


def test_a_release_goes_through_the_gate_to_production(clone: Any, cell: Any, tmp_path: Path) -> None:
    root = tmp_path / "servers"
    work = clone("deployments")
    work.push(quietly=True)
    work.project.variables.create({"key": "DEPLOY_ROOT", "value": str(root)})
    sha = work.commit("Deploy this")
    waiting = work.pushed()
    assert waiting.status == "manual", waiting.states
    assert {name: state for name, state in waiting.states.items() if state != "created"} == {
        "build": "success",
        "staging": "success",
        "migrate staging": "success",
        "smoke staging": "failed",
        "stop staging": "manual",
        "approve": "manual",
    }
    tries = waiting.pipeline.jobs.list(get_all=True, include_retried=True)
    assert sorted(job.status for job in tries if job.name == "migrate staging") == ["failed", "success"]
    assert (root / "staging/schema").read_text() == "migrated\n"
    assert waiting.jobs["smoke staging"].allow_failure

    waiting.jobs["approve"].play()
    ended = cell.outcome(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert ended.status == "success", ended.states
    assert {name: state for name, state in ended.states.items() if state != "success"} == {
        "smoke staging": "failed",
        "stop staging": "manual",
        "roll back": "skipped",
    }
    assert ended.said("approve") == ["approved by root"]
    deployed = (root / "log").read_text().splitlines()
    assert deployed[:3] == [f"{name} {sha[:8]}" for name in ("staging", "production/canary", "production/all")]
    assert sorted(deployed[3:]) == [f"production/{name} {sha[:8]}" for name in ("east", "west")]
    first, second = sorted((ended.jobs[f"region {name}"] for name in ("east", "west")), key=lambda job: job.started_at)
    assert first.finished_at <= second.started_at

    ended.jobs["stop staging"].play()
    cell.until(lambda: not (root / "staging").exists(), "staging is stopped")


def test_a_delayed_job_waits_until_it_is_played(clone: Any, cell: Any, tmp_path: Path) -> None:
    work = clone("deployments")
    work.push(quietly=True)
    given = {"DEPLOY_ROOT": str(tmp_path / "servers"), "LOAD_TEST": "yes"}
    work.push("main:feature", quietly=True)
    waiting = work.started(ref="feature", variables=given, rest=frozenset({"scheduled"}))
    assert waiting.states["load test"] == "scheduled"
    assert waiting.states["summary"] == "created"
    waiting.jobs["load test"].play()
    ended = cell.outcome(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert ended.status == "success", ended.states
    assert (ended.states["load test"], ended.states["summary"]) == ("success", "success")
    assert not {"approve", "canary", "production"} & ended.states.keys()


def test_what_fails_in_production_is_rolled_back(clone: Any, cell: Any, tmp_path: Path) -> None:
    work = clone("deployments")
    work.push(quietly=True)
    root = tmp_path / "servers"
    work.project.variables.create({"key": "DEPLOY_ROOT", "value": str(root)})
    waiting = work.started()
    (root / ".lock-regions").mkdir()
    waiting.jobs["approve"].play()
    ended = cell.outcome(work.project, waiting.pipeline.id, rest=frozenset({"success", "failed"}))
    assert ended.status == "failed", ended.states
    assert (ended.states["region east"], ended.states["region west"]) == ("failed", "failed")
    assert "rolling back from production/all" in ended.said("roll back")[0]
    assert ended.states["summary"] == "success"
