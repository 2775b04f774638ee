"""Public projects without sign-in: only where the cell allows it, only public ones, and nothing but what is public."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cells.page_client import PageClient
from tests.support.cells.people import create_group, create_group_project
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.http.edge.public_reads import CLOSED_READS, PUBLIC_READS
from remuda.cell.values.people import Level
from remuda.cell.web_settings import WebSettings

PIPELINE = "job:\n  script: make\n  artifacts: {paths: [out]}\n"
KINDS = (Kind.PROJECT, Kind.JOB_NUMBER, Kind.PIPELINE_NUMBER)


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", web=WebSettings(public_projects=True)) as served:
        yield served


@pytest.fixture
def nobody(cell: ServedCell) -> PageClient:
    return PageClient(cell)


@pytest.fixture
def projects(cell: ServedCell) -> dict[str, int]:
    """A project of each visibility with a finished job, by visibility."""
    runner = cell.new_runner()
    group = create_group(cell, "acme")
    made = {}
    for visibility in ("public", "internal", "private"):
        made[visibility] = create_group_project(cell, group, visibility, PIPELINE, visibility=visibility)
        cell.api("POST", f"/projects/{made[visibility]}/variables", {"key": "SECRET", "value": "hunter2hunter2"})
        finish_job(runner)
    return made


def finish_job(runner: ScriptedRunner) -> None:
    job = runner.take()
    assert runner.patch(job, 0, b"made it\n").status == 202
    assert runner.put(job, "success").status == 200


def paths_of(cell: ServedCell, project: int) -> list[str]:
    """Addresses of all calls that read something of a project, with its first pipeline and job."""
    [job] = cell.api("GET", f"/projects/{project}/jobs").json()
    values = {
        "id": project,
        "job_id": job["id"],
        "pipeline_id": job["pipeline"]["id"],
        "sha": job["commit"]["id"],
        "branch": "main",
        "ref": "main",
        "path": ".gitlab-ci.yml",
        "path:path": ".gitlab-ci.yml",
    }
    paths = []
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.access.kind in KINDS:
            path = endpoint.path
            for name, value in values.items():
                path = path.replace(f"{{{name}}}", str(value))
            query = "?ref=main" if "/files/" in path else "?from=main&to=main" if path.endswith("compare") else ""
            paths.append(path.replace("{", "").replace("}", "") + query)
    return paths


def test_every_read_of_a_project_is_open_or_closed() -> None:
    """If this fails for a new endpoint: put its path into one of the two tables of `public_reads`."""
    reads = {
        endpoint.path
        for endpoint in ENDPOINTS
        if endpoint.method == "GET" and endpoint.access.kind in KINDS and endpoint.access.level <= Level.REPORTER
    }
    assert sorted(reads - PUBLIC_READS - CLOSED_READS) == []
    assert not PUBLIC_READS & CLOSED_READS
    everything = {endpoint.path for endpoint in ENDPOINTS if endpoint.access.kind not in KINDS}
    assert not everything & PUBLIC_READS


def test_a_public_project_can_be_read(nobody: PageClient, cell: ServedCell, projects: dict[str, int]) -> None:
    project = projects["public"]
    root = f"/api/v4/projects/{project}"
    assert nobody.get(root).json()["path_with_namespace"] == "acme/public"
    [job] = nobody.get(f"{root}/jobs").json()
    assert nobody.get(f"{root}/jobs/{job['id']}/trace").body == b"made it\n"
    assert nobody.get(f"{root}/pipelines").json()[0]["status"] == "success"
    assert nobody.get(f"{root}/repository/files/.gitlab-ci.yml/raw?ref=main").body == PIPELINE.encode()
    for path in paths_of(cell, project):
        answer = nobody.get(path)
        assert answer.status < 500, path
        assert b"hunter2" not in answer.body, path


def test_nothing_else_can_be_read(nobody: PageClient, cell: ServedCell, projects: dict[str, int]) -> None:
    for visibility in ("internal", "private"):
        for path in paths_of(cell, projects[visibility]):
            assert nobody.get(path).status == 401, path
    for path in paths_of(cell, projects["public"]):
        route = next(e.path for e in ENDPOINTS if e.method == "GET" and matches(e.path, path, cell))
        if route not in PUBLIC_READS:
            assert nobody.get(path).status == 401, path


def matches(route: str, path: str, cell: ServedCell) -> bool:
    parts, given = route.split("/"), path.partition("?")[0].split("/")
    fits = [part == value or part.startswith("{") for part, value in zip(parts, given, strict=False)]
    return len(parts) == len(given) and all(fits)


def test_steps_and_files_for_later_jobs_are_closed(nobody: PageClient, cell: ServedCell) -> None:
    runner = cell.new_runner()
    group = create_group(cell, "acme")
    project = create_group_project(cell, group, "open", PIPELINE, visibility="public")
    job = runner.take()
    step = {"version": 1, "seq": 1, "event": "finished", "path": "build", "name": "build", "status": "success"}
    sent = {"version": 1, "results": [step]}
    assert cell.send("POST", f"/api/remuda/v1/jobs/{job['id']}/results", sent, JOB_TOKEN=job["token"]).status < 300
    dotenv_query = "?artifact_type=dotenv&artifact_format=gzip"
    assert runner.upload(job, gzip.compress(b"SECRET=1\n"), filename=".env.gz", query=dotenv_query).status == 201
    progress = f"/api/remuda/v1/pipelines/{job['job_info']['pipeline_id']}/progress?details=all"
    assert cell.send("GET", progress, PRIVATE_TOKEN=cell.token).json()["jobs"][0]["steps"]
    assert "steps" not in nobody.get(progress).json()["jobs"][0]
    address = f"/api/v4/projects/{project}/jobs/{job['id']}/artifacts?file_type=dotenv"
    assert cell.send("GET", address, PRIVATE_TOKEN=cell.token).status == 200
    assert nobody.get(address).status == 401


def test_invented_tokens_do_not_lift_the_limit_of_public_reads(tmp_path: Path) -> None:
    web = WebSettings(public_projects=True)
    with ServedCell(tmp_path / "cell", web=web, anonymous_requests_per_minute=20) as cell:
        group = create_group(cell, "acme")
        project = create_group_project(cell, group, "open", PIPELINE, visibility="public")
        visitor = PageClient(cell)
        path = f"/api/v4/projects/{project}"
        statuses = [visitor.get(path, RUNNER_TOKEN="invented").status for _ in range(30)]
    assert set(statuses) == {200, 429}


def test_no_call_outside_of_a_project_is_open(nobody: PageClient, cell: ServedCell, projects: dict[str, int]) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.access.kind in (Kind.USER, Kind.ADMINISTRATOR, Kind.GROUP, Kind.RUNNER_NUMBER):
            path = endpoint.path.replace("{", "").replace("}", "")
            path = path.replace("/id", "/1").replace("runner_id", "1").replace("token_id", "1")
            answer = nobody.send(endpoint.method, path, {})
            assert answer.status in (401, 404, 405), (endpoint.method, path, answer)


def test_nothing_can_be_changed(nobody: PageClient, cell: ServedCell, projects: dict[str, int]) -> None:
    project = projects["public"]
    [job] = cell.api("GET", f"/projects/{project}/jobs").json()
    values = {"id": project, "job_id": job["id"], "pipeline_id": job["pipeline"]["id"]}
    for endpoint in ENDPOINTS:
        if endpoint.method != "GET" and endpoint.access.kind in KINDS:
            path = endpoint.path
            for name, value in values.items():
                path = path.replace(f"{{{name}}}", str(value))
            answer = nobody.send(endpoint.method, path.replace("{", "").replace("}", ""), {"name": "x"})
            assert answer.status == 401, (endpoint.method, path, answer)


def test_what_needs_a_higher_level_stays_closed(cell: ServedCell, nobody: PageClient) -> None:
    text = 'job:\n  script: make\n  variables: {CI_DEBUG_TRACE: "true"}\n  artifacts: {paths: [o], access: developer}\n'
    runner = cell.new_runner()
    project = create_group_project(cell, create_group(cell, "acme"), "shop", text, visibility="public")
    job = runner.take()
    assert runner.patch(job, 0, b"SECRET=hunter2", is_traced=True).status == 202
    assert runner.upload(job, b"PK\x05\x06" + bytes(18)).status == 201
    runner.put(job, "success")
    root = f"/api/v4/projects/{project}/jobs/{job['id']}"
    assert nobody.get(f"{root}/trace").status in (401, 403)
    assert nobody.get(f"{root}/artifacts").status in (401, 403)
    assert nobody.get(root).status == 200


def test_without_the_setting_nothing_is_open(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "other") as cell:
        create_group_project(cell, create_group(cell, "acme"), "shop", PIPELINE, visibility="public")
        nobody = PageClient(cell)
        for path in paths_of(cell, 1):
            assert nobody.get(path).status == 401
        assert nobody.get("/acme/shop").headers["Location"] == "/-/sign-in?return_to=%2Facme%2Fshop"


def test_private_and_missing_projects_look_the_same(nobody: PageClient, projects: dict[str, int]) -> None:
    for path in ("/acme/private", "/acme/internal", "/acme/missing", "/acme"):
        answer = nobody.get(path)
        assert answer.status == 303
        assert answer.headers["Location"].startswith("/-/sign-in?return_to=")
    bodies = {
        (nobody.get(f"/api/v4/projects/acme%2F{name}").status, nobody.get(f"/api/v4/projects/acme%2F{name}").body)
        for name in ("private", "internal", "missing")
    }
    assert len(bodies) == 1


def test_a_wrong_token_is_still_refused(nobody: PageClient, projects: dict[str, int]) -> None:
    path = f"/api/v4/projects/{projects['public']}"
    assert nobody.get(path, PRIVATE_TOKEN="wrong").status == 401
    nobody.cookies["remuda_session"] = "wrong"
    assert nobody.get(path).status == 401
