"""Clients that others wrote walk through the API of a cell: what they send comes back, nothing is dropped silently."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.client_calls import list_calls
from tests.support.api_walks import Call, find_dropped_fields
from tests.support.built_programs import require_built
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.git_client import git
from tests.support.runners.job_worker import ARTIFACT_CONTENT, JobWorker
from tools.client_table import CALLS_FILE, Endpoints, read_calls

from remuda.cell.http.edge.app import api_document
from remuda.testing.waiting import wait_until

BUILD = Path(__file__).parents[2] / "build" / "interop"


@pytest.fixture
def worker(cell: ServedCell) -> Iterator[JobWorker]:
    with JobWorker(cell) as running:
        yield running


def run_walk(command: list[str], **more: Any) -> dict[str, Call]:
    """Run a client's program. Returns its calls by name, after it has checked that every sent field came back."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, **more)
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    dropped = [text for call in calls for text in find_dropped_fields(call)]
    assert done.returncode == 0, (done.stderr, dropped)
    assert dropped == []
    return {call["call"]: call for call in calls}


@pytest.mark.usefixtures("worker")
def test_client_go(cell: ServedCell) -> None:
    """GitLab's Go client, on which glab and the Terraform provider are built."""
    program = BUILD / "client-go"
    require_built(program)
    calls = run_walk([str(program), cell.url, cell.token])
    assert len(calls) >= 80
    assert "log of build" in calls["trace"]["got"]


@pytest.mark.usefixtures("worker")
def test_gitbeaker(cell: ServedCell) -> None:
    program = BUILD / "gitbeaker" / "walk.mjs"
    require_built(program)
    calls = run_walk(["node", str(program), cell.url, cell.token])
    assert len(calls) >= 60
    assert "log of build" in calls["trace"]["got"]


class Glab:
    """GitLab's command line, with its own home folder and a repository of the cell."""

    def __init__(self, cell: ServedCell, home: Path, project: str) -> None:
        self._program = BUILD / "glab" / "usr" / "bin" / "glab"
        require_built(self._program)
        self._project = project
        home.mkdir()
        git(home, "init", "-q", "-b", "main")
        self._home = home
        host = cell.url.removeprefix("http://")
        self._variables = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "GITLAB_HOST": cell.url,
            "GITLAB_TOKEN": cell.token,
            "GLAB_CHECK_UPDATE": "false",
            "NO_PROMPT": "1",
            "NO_COLOR": "1",
        }
        for name, value in {"api_protocol": "http", "git_protocol": "http"}.items():
            self.run("config", "set", "--host", host, name, value)

    def run(self, *words: str) -> str:
        """Run a command, which must succeed. Returns its output."""
        command = [str(self._program), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, cwd=self._home, env=self._variables
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def call(self, *words: str) -> str:
        """Run a command for the project."""
        return self.run(*words, "-R", self._project)

    def api(self, path: str, method: str = "GET", **fields: object) -> Any:
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
        words = [word for name, text in texts.items() for word in ("--field", f"{name}={text}")]
        output = self.run("api", path, "--method", method, *words)
        return json.loads(output) if output.strip() else None


@pytest.mark.usefixtures("worker")
def test_glab(cell: ServedCell, tmp_path: Path) -> None:
    """GitLab's command line, as a person types it."""
    glab = Glab(cell, tmp_path / "home", "root/walk")
    glab.run("repo", "create", "walk", "--private", "--description", "made by glab")
    project = glab.api("projects/root%2Fwalk")
    assert (project["description"], project["visibility"]) == ("made by glab", "private")
    assert "root/walk" in glab.run("repo", "list")
    assert "root/walk" in glab.run("repo", "search", "-s", "walk")
    commit_file(cell, project["id"], GLAB_PIPELINE)

    (tmp_path / "home" / ".gitlab-ci.yml").write_text(GLAB_PIPELINE)
    assert "valid" in glab.call("ci", "lint")
    wait_until(
        lambda: '"status":"success"' in glab.call("ci", "get", "--branch", "main", "--output", "json"),
        "the pipeline ends",
        60,
    )
    assert "log of build" in glab.call("ci", "trace", "build")
    glab.call("job", "artifact", "main", "build", "--path", str(tmp_path / "artifacts"))
    assert (tmp_path / "artifacts" / "out").read_text() == ARTIFACT_CONTENT
    glab.call("ci", "trigger", "deploy")
    assert "Created pipeline" in glab.call("ci", "run", "--branch", "main", "--variables", "WHO:glab")
    assert "main" in glab.call("ci", "list")

    glab.call("variable", "set", "KEY", "value", "--scope", "production", "--description", "by glab", "--raw")
    stored = json.loads(glab.call("variable", "get", "KEY", "--scope", "production", "--output", "json"))
    assert (stored["value"], stored["description"], stored["raw"]) == ("value", "by glab", True)
    glab.call("variable", "update", "KEY", "other", "--scope", "production")
    assert glab.call("variable", "get", "KEY", "--scope", "production") == "other"
    glab.call("variable", "delete", "KEY", "--scope", "production")
    assert "KEY" not in glab.call("variable", "export")

    schedule = ("--cron", "0 3 * * *", "--description", "nightly", "--ref", "main", "--variable", "MODE:night")
    glab.call("schedule", "create", *schedule)
    assert "nightly" in glab.call("schedule", "list")
    glab.call("schedule", "run", "1")
    glab.call("schedule", "delete", "1")

    token = glab.call("token", "create", "robot", "--access-level", "developer", "--scope", "api", "--duration", "240h")
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=token.strip()).status == 200
    assert "robot" in glab.call("token", "list")
    glab.call("token", "revoke", "robot")
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=token.strip()).status == 401

    glab.call("release", "create", "v1", "--notes", "first", "--ref", "main")
    assert "v1" in glab.call("release", "list")
    assert "No open merge requests" in glab.call("mr", "list")

    environments = glab.api("projects/root%2Fwalk/environments")
    assert [environment["name"] for environment in environments] == ["production"]
    hook = {"url": "https://hooks.example.com/ci", "pipeline_events": True}
    assert glab.api("projects/root%2Fwalk/hooks", "POST", **hook)["pipeline_events"] is True
    branch = glab.api("projects/root%2Fwalk/protected_branches", "POST", name="release/*", push_access_level=40)
    assert branch["push_access_levels"][0]["access_level"] == 40
    runner = glab.api("user/runners", "POST", runner_type="project_type", project_id=project["id"])
    assert runner["token"].startswith("glrt-")
    glab.run("repo", "delete", "root/walk", "--yes")
    assert glab.run("repo", "list").count("root/walk") == 0


GLAB_PIPELINE = """
build:
  script: [echo built]
  artifacts: {paths: [out]}
deploy:
  stage: deploy
  when: manual
  script: [echo deployed]
  environment: production
"""


def test_list_of_calls_is_current() -> None:
    """The documentation says which calls work; it is generated from this list."""
    require_built(BUILD / "gitbeaker" / "calls.mjs")
    assert list_calls() == CALLS_FILE.read_text(), "run python -m tests.interop.client_calls and make docs"


def test_every_call_of_the_clients_is_answered(cell: ServedCell) -> None:
    """What a cell does not have answers 404 (or 405 if only the method is missing); nothing fails inside."""
    endpoints = Endpoints(json.loads(api_document()))
    _versions, calls = read_calls()
    # These end the validity of the token itself.
    for call in (call for call in calls if not call.endswith("/self")):
        method, _, path = call.partition(" ")
        answer = cell.send(method, f"/api/v4/{path.replace('*', '987654')}", {}, PRIVATE_TOKEN=cell.token)
        if endpoints.has(call):
            assert answer.status < 500, (call, answer)
        else:
            assert answer.status in (404, 405), (call, answer)
