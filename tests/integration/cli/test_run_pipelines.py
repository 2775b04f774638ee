"""Runs the repositories in examples/pipelines with `remuda run`, without a server."""

import json
from pathlib import Path
from typing import Any

import pytest

OTHERS = ("--project", "root/ci-templates={examples}/shared-templates/ci-templates")
RUNS: dict[str, tuple[list[str], int, dict[str, int]]] = {
    # Arguments, exit code, and number of jobs by status, including jobs of child and multi-project pipelines.
    "monorepo": ([], 0, {"success": 13}),
    "python-library": ([], 0, {"success": 8, "failed": 1}),
    "release-flow": (["--tag", "v1.2.3", "--manual", "production"], 0, {"success": 9}),
    "web-app": ([], 0, {"success": 6, "failed": 1, "manual": 1}),
    "docs-site": ([], 0, {"success": 4, "failed": 1}),
    "merge-requests": (["--event", "merge_request"], 0, {"success": 4, "manual": 1}),
    "shared-templates/service": (
        [*OTHERS, "--project", "root/deployer={examples}/shared-templates/deployer"],
        0,
        {"success": 11},
    ),
    "fan-out": (["--variable", "PROOFREAD=yes"], 0, {"success": 24}),
    "deployments": (["--variable", "DEPLOY_ROOT={folder}/servers"], 1, {}),
    "nightly": (["--event", "schedule", "--variable", "SCHEDULE=nightly"], 0, {"success": 7, "skipped": 1}),
}


def run_example(world: Any, examples: Path, name: str, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    result = world.remuda("run", examples / "pipelines" / name, "--output", "json", *arguments)
    assert result.code == code, result.out + result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


def every_job(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    inner = [every_job(job["downstream"]["jobs"]) for job in jobs if job.get("downstream")]
    return [*jobs, *(job for jobs_below in inner for job in jobs_below)]


@pytest.mark.parametrize("name", RUNS)
def test_an_example_repository_runs_locally(world: Any, examples: Path, name: str) -> None:
    arguments, code, expected = RUNS[name]
    places = {"examples": examples / "pipelines", "folder": world.folder}
    document = run_example(world, examples, name, *(text.format(**places) for text in arguments), code=code)
    statuses = [job["status"] for job in every_job(document["jobs"])]
    if expected:
        assert {status: statuses.count(status) for status in set(statuses)} == expected
    else:
        # The run ends at the blocking manual job.
        assert document["status"] == "manual"
        assert {job["name"] for job in document["jobs"] if job["status"] == "manual"} == {"approve", "stop staging"}
    if name == "python-library":
        assert [(tests["total"], tests["skipped"]) for tests in document["tests"]] == [(4, 1)] * 4


def test_the_second_run_finds_the_cache_and_leaves_artifacts(world: Any, examples: Path) -> None:
    run_example(world, examples, "web-app")
    result = world.remuda("run", examples / "pipelines/web-app", "--artifacts", "out", "--data", "kept")
    assert result.code == 0, result.out + result.err
    assert (world.folder / "out/bundle/dist/app.js").read_text().startswith("// production\n")
    logs = [path.read_text() for path in (world.folder / "kept/cell/traces").rglob("*") if path.is_file()]
    assert any("from the cache, 0 fetched" in log for log in logs)
