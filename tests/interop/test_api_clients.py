"""Clients that others wrote walk through the API of a cell: what they send comes back, nothing is dropped silently."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.client_calls import list_calls, python_gitlab_calls
from tests.support.api_walks import Call, find_dropped_fields
from tests.support.built_programs import require_built
from tests.support.cells.served_cell import ServedCell, commit_file
from tests.support.git_client import git
from tests.support.runners.job_worker import ARTIFACT_CONTENT, JobWorker
from tools.client_table import CALLS_FILE, Endpoints, area_of, read_calls

from remuda.cell.http.edge.app import api_document
from remuda.testing.waiting import wait_until

BUILD = Path(__file__).parents[2] / "build" / "interop"
API_CLIENTS = Path(__file__).parents[2] / "docs" / "reference" / "generated" / "api-clients.md"


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
    """GitLab's command line, as a person types it. What a command has sent must be in what the cell then has."""
    glab = Glab(cell, tmp_path / "home", "root/walk")
    glab.run("repo", "create", "walk", "--private", "--description", "made by glab")
    project = glab.api("projects/root%2Fwalk")
    expect(project, description="made by glab", visibility="private", path_with_namespace="root/walk", archived=False)
    [listed] = json.loads(glab.run("repo", "list", "--output", "json"))
    expect(listed, **{name: project[name] for name in ("id", "description", "visibility", "http_url_to_repo")})
    expect(json.loads(glab.run("repo", "view", "root/walk", "--output", "json")), id=project["id"], name="walk")
    assert "root/walk" in glab.run("repo", "search", "-s", "walk")
    commit_file(cell, project["id"], GLAB_PIPELINE)

    check_pipelines(glab, tmp_path)
    check_variables_and_schedules(glab)
    check_tokens(glab, cell)

    glab.call("release", "create", "v1", "--notes", "first", "--ref", "main", "--name", "One")
    release = glab.api("projects/root%2Fwalk/releases/v1")
    expect(release, tag_name="v1", name="One", description="first")
    assert release["commit"]["id"] == glab.api("projects/root%2Fwalk/repository/commits/main")["id"]
    assert "v1" in glab.call("release", "list")
    assert json.loads(glab.call("mr", "list", "--output", "json")) == []

    [environment] = glab.api("projects/root%2Fwalk/environments")
    expect(environment, name="production", state="available", tier="production")
    hook = {"url": "https://hooks.example.com/ci", "pipeline_events": True, "push_events": False, "name": "CI"}
    created = glab.api("projects/root%2Fwalk/hooks", "POST", **hook)
    expect(glab.api(f"projects/root%2Fwalk/hooks/{created['id']}"), **hook, enable_ssl_verification=True)
    rule = {"name": "release/*", "allow_force_push": True}
    branch = glab.api("projects/root%2Fwalk/protected_branches", "POST", **rule, push_access_level=40)
    expect(branch, **rule)
    assert [level["access_level"] for level in branch["push_access_levels"]] == [40]
    fields = {"runner_type": "project_type", "description": "by glab", "run_untagged": False}
    runner = glab.api("user/runners", "POST", **fields, tag_list="a,b", project_id=project["id"])
    assert runner["token"].startswith("glrt-")
    expect(glab.api(f"runners/{runner['id']}"), **fields, tag_list=["a", "b"], paused=False)
    glab.run("repo", "delete", "root/walk", "--yes")
    assert json.loads(glab.run("repo", "list", "--output", "json")) == []


def check_pipelines(glab: Glab, folder: Path) -> None:
    (folder / "home" / ".gitlab-ci.yml").write_text(GLAB_PIPELINE)
    assert "valid" in glab.call("ci", "lint")

    def pipeline() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(glab.call("ci", "get", "--branch", "main", "--output", "json"))
        return shown

    wait_until(lambda: pipeline()["status"] == "success", "the pipeline ends", 60)
    expect(pipeline(), ref="main", source="push", yaml_errors="", tag=False)
    jobs = {job["name"]: job for job in pipeline()["jobs"]}
    expect(jobs["build"], status="success", stage="test", ref="main")
    expect(jobs["deploy"], status="manual", stage="deploy", allow_failure=True)
    assert "log of build" in glab.call("ci", "trace", "build")
    glab.call("job", "artifact", "main", "build", "--path", str(folder / "artifacts"))
    assert (folder / "artifacts" / "out").read_text() == ARTIFACT_CONTENT
    glab.call("ci", "trigger", "deploy")
    deploy = f"projects/root%2Fwalk/jobs/{jobs['deploy']['id']}"
    wait_until(lambda: glab.api(deploy)["status"] == "success", "the manual job ends", 60)
    assert "Created pipeline" in glab.call("ci", "run", "--branch", "main", "--variables", "WHO:glab")
    newest, first = json.loads(glab.call("ci", "list", "--output", "json"))
    expect(newest, ref="main", source="api", sha=first["sha"])
    [given] = glab.api(f"projects/root%2Fwalk/pipelines/{newest['id']}/variables")
    expect(given, key="WHO", value="glab", variable_type="env_var")


def check_variables_and_schedules(glab: Glab) -> None:
    words = ("--scope", "production", "--description", "by glab", "--raw", "--masked", "--protected")
    glab.call("variable", "set", "KEY", "secret-value", *words, "--type", "file")

    def variable() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(
            glab.call("variable", "get", "KEY", "--scope", "production", "--output", "json")
        )
        return shown

    fields = {"key": "KEY", "environment_scope": "production", "variable_type": "file", "masked": True}
    fields |= {"raw": True, "protected": True, "description": "by glab"}
    expect(variable(), **fields, value="secret-value")
    assert json.loads(glab.call("variable", "list", "--output", "json")) == [variable()]
    glab.call("variable", "update", "KEY", "other-value", "--scope", "production", "--masked", "--type", "file")
    expect(variable(), key="KEY", value="other-value", environment_scope="production", masked=True)
    glab.call("variable", "delete", "KEY", "--scope", "production")
    assert glab.api("projects/root%2Fwalk/variables") == []

    timing = {"cron": "0 3 * * *", "description": "nightly", "cron_timezone": "Europe/Berlin"}
    options = ("--cron", timing["cron"], "--description", timing["description"], "--cronTimeZone", "Europe/Berlin")
    glab.call("schedule", "create", *options, "--ref", "main", "--variable", "MODE:night", "--active=true")
    [schedule] = glab.api("projects/root%2Fwalk/pipeline_schedules")
    assert schedule["ref"] in ("main", "refs/heads/main")
    shown = glab.api(f"projects/root%2Fwalk/pipeline_schedules/{schedule['id']}")
    expect(shown, **timing, active=True)
    [given] = shown["variables"]
    expect(given, key="MODE", value="night")
    assert "nightly" in glab.call("schedule", "list")
    glab.call("schedule", "run", str(schedule["id"]))
    wait_until(lambda: [row for row in glab.api("projects/root%2Fwalk/pipelines") if row["source"] == "schedule"])
    glab.call("schedule", "delete", str(schedule["id"]))
    assert glab.api("projects/root%2Fwalk/pipeline_schedules") == []


def check_tokens(glab: Glab, cell: ServedCell) -> None:
    words = ("--access-level", "developer", "--scope", "api", "--duration", "240h")
    token = json.loads(glab.call("token", "create", "robot", *words, "--output", "json"))
    fields = {"name": "robot", "access_level": 30, "scopes": ["api"], "active": True, "revoked": False}
    expect(token, **fields)
    [listed] = json.loads(glab.call("token", "list", "--output", "json"))
    expect(listed, **fields, id=token["id"], expires_at=token["expires_at"])
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=token["token"]).status == 200
    glab.call("token", "revoke", "robot")
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=token["token"]).status == 401


def expect(shown: dict[str, Any], **fields: object) -> None:
    """Assert that an object has these fields with these values."""
    assert {name: shown.get(name, "no such field") for name in fields} == fields


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


def test_every_absent_call_stands_in_the_page() -> None:
    endpoints = Endpoints(json.loads(api_document()))
    absent_in_part, _, absent = API_CLIENTS.read_text().partition("## Absent in part")[2].partition("## Absent\n")
    _versions, calls = read_calls()
    for call in (call for call in calls if not endpoints.has(call)):
        method, _, path = call.partition(" ")
        if f"`{area_of(call)}`" not in absent:
            assert re.search(rf"`([A-Z ]*\b{method}\b[A-Z ]* )?{re.escape(path)}`", absent_in_part), call


def test_paths_of_python_gitlab() -> None:
    """Some objects are created at another path than the one where they are listed."""
    calls = set(python_gitlab_calls())
    assert {"POST projects/*/statuses/*", "POST projects/*/pipeline", "GET projects/*/pipelines"} <= calls
    assert "POST projects/*/pipelines" not in calls


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
