"""Shells over HTTP: a user and a scripted manager, with one or several processes, and callers that are refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until

SYSTEM = "s_0123456789ab"


class ManagerSide:
    """The requests of a manager."""

    def __init__(self, cell: ServedCell, token: str, system_id: str = SYSTEM) -> None:
        self.cell, self.token, self.system_id = cell, token, system_id

    def wanted(self, **more: Any) -> Answer:
        body = {"token": self.token, "system_id": self.system_id, **more}
        return self.cell.send("POST", "/api/remuda/v1/runners/wanted", body)

    def call(self, method: str, path: str, body: bytes | None = None, query: str = "", **headers: str) -> Answer:
        return self.cell.send(
            method,
            f"/api/remuda/v1/runners/shells/{path}?system_id={self.system_id}{query}",
            body,
            RUNNER_TOKEN=self.token,
            **headers,
        )


def call_as_user(cell: ServedCell, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> Answer:
    return cell.send(method, f"/api/remuda/v1/jobs/{path}", body, PRIVATE_TOKEN=token or cell.token, **headers)


def create_user(cell: ServedCell, name: str, project: int, level: int) -> str:
    created = cell.api("POST", "/users", {"username": name, "name": name, "email": f"{name}@example.com"})
    assert created.status == 201, created
    if level:
        cell.api("POST", f"/projects/{project}/members", {"user_id": created.json()["id"], "access_level": level})
    body = {"name": "t", "scopes": ["api"]}
    token: str = cell.api("POST", f"/users/{created.json()['id']}/personal_access_tokens", body).json()["token"]
    return token


@pytest.fixture
def project(cell: ServedCell) -> int:
    return cell.new_project("app", "build:\n  script: make\n")


@pytest.fixture
def job(cell: ServedCell, project: int, runner: ScriptedRunner) -> dict[str, Any]:
    taken = runner.take()
    assert runner.put(taken, "running").status == 200
    return taken


def test_shell_from_its_opening_to_its_end(cell: ServedCell, job: dict[str, Any], runner: ScriptedRunner) -> None:
    manager = ManagerSide(cell, runner.token)
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(manager.wanted)
        created = call_as_user(
            cell, "POST", f"{job['id']}/shells", {"command": ["ls", "-l"], "columns": 100, "rows": 30}
        )
        assert created.status == 201, created
        shell = created.json()["id"]
        [requested] = poll.result(20).json()["shells"]
        expected = {"id": shell, "job_id": job["id"], "command": ["ls", "-l"], "columns": 100, "rows": 30}
        assert requested | expected == requested
        assert not requested["begun"]
        path = f"{job['id']}/shells/{shell}"
        feeding = pool.submit(manager.call, "GET", f"{shell}/input", None, "&offset=0")
        assert call_as_user(cell, "PATCH", f"{path}/input", b"typed", Content_Range="0-4").status == 202
        received = feeding.result(20)
        assert (received.body, received.headers["X-Remuda-Shell-State"]) == (b"typed", "open")
        reading = pool.submit(call_as_user, cell, "GET", f"{path}/output?offset=0")
        sent = manager.call("PATCH", f"{shell}/output", b"shown", Content_Range="0-4")
        assert (sent.status, sent.headers["Range"]) == (202, "0-5")
        assert reading.result(20).body == b"shown"
        assert manager.call("PATCH", f"{shell}/output", b"gap", Content_Range="9-11").headers["Range"] == "0-5"
        # A restarted manager gets the shell again, and sees that it has begun before.
        assert manager.wanted().json()["shells"][0]["begun"]
        waiting = pool.submit(call_as_user, cell, "GET", f"{path}/output?offset=5")
        assert manager.call("DELETE", shell, None, "&reason=it%20has%20ended").status == 204
        assert waiting.result(20).headers["X-Remuda-Shell-State"] == "over"
    assert (
        call_as_user(cell, "GET", path).json() | {"state": "over", "reason": "it has ended"}
        == call_as_user(cell, "GET", path).json()
    )
    assert call_as_user(cell, "PATCH", f"{path}/input", b"late", Content_Range="5-8").status == 416
    events = cell.api("GET", "/audit_events?action=job_shell_opened").json()
    assert [(event["entity_type"], event["details"]["target_details"]) for event in events] == [
        ("Project", str(job["id"]))
    ]


def test_who_may_use_a_shell(
    cell: ServedCell, project: int, job: dict[str, Any], runner: ScriptedRunner, tmp_path: Path
) -> None:
    created = call_as_user(cell, "POST", f"{job['id']}/shells", {}).json()
    path = f"{job['id']}/shells/{created['id']}"
    calls = [("POST", f"{job['id']}/shells"), ("GET", path), ("DELETE", path), ("GET", f"{path}/output")]
    developer, stranger = create_user(cell, "dev", project, 30), create_user(cell, "stranger", project, 0)
    for method, target in [*calls, ("PATCH", f"{path}/input")]:
        assert call_as_user(cell, method, target, token=developer).status == 403
        assert call_as_user(cell, method, target, token=stranger).status == 404
        assert call_as_user(cell, method, target, token="glpat-wrong").status == 401
        assert cell.send(method, f"/api/remuda/v1/jobs/{target}", JOB_TOKEN=job["token"]).status == 401
    # Another maintainer may open a shell, but not use this one.
    maintainer = create_user(cell, "other", project, 40)
    for method, target in calls[1:]:
        assert call_as_user(cell, method, target, token=maintainer).status == 404
    assert call_as_user(cell, "POST", f"{job['id']}/shells", {}, token=maintainer).status == 201
    # Other runners, and other managers of the same runner, have no access.
    for manager in (ManagerSide(cell, cell.new_runner().token), ManagerSide(cell, runner.token, "s_another")):
        for method, rest in (("GET", "/input"), ("PATCH", "/output"), ("DELETE", "")):
            assert manager.call(method, f"{created['id']}{rest}", Content_Range="0-0").status == 404
    assert ManagerSide(cell, "glrt-wrong").wanted().status == 403
    assert ManagerSide(cell, "glrt-wrong").call("GET", f"{created['id']}/input").status == 403
    assert cell.send("GET", f"/api/remuda/v1/runners/shells/{created['id']}/input").status == 400
    assert call_as_user(cell, "GET", path).json()["state"] == "waiting"


@pytest.mark.parametrize(
    "body",
    [
        {"columns": 0},
        {"rows": 10_000},
        {"columns": -1},
        {"command": "ls"},
        {"command": ["a\0b"]},
        {"command": ["x"] * 2000},
        {"command": ["x" * 40_000]},
        {"term": "x" * 200},
    ],
)
def test_invalid_parameters(cell: ServedCell, job: dict[str, Any], body: dict[str, Any]) -> None:
    assert call_as_user(cell, "POST", f"{job['id']}/shells", body).status == 400


def test_forged_names_and_pieces(cell: ServedCell, job: dict[str, Any]) -> None:
    created = call_as_user(cell, "POST", f"{job['id']}/shells", {}).json()
    for forged in ("0" * 32, "..", "%2e%2e", "..%2fheld", "a" * 5000):
        assert call_as_user(cell, "GET", f"{job['id']}/shells/{forged}").status == 404
        assert call_as_user(cell, "DELETE", f"{job['id']}/shells/{forged}").status == 404
    path = f"{job['id']}/shells/{created['id']}"
    assert call_as_user(cell, "PATCH", f"{path}/input", b"x").status == 400
    assert call_as_user(cell, "PATCH", f"{path}/input", b"x", Content_Range="lots").status == 400
    assert (
        call_as_user(cell, "PATCH", f"{path}/input", b"x" * (1024 * 1024 + 1), Content_Range="0-1048576").status == 413
    )
    assert call_as_user(cell, "GET", f"{path}/output?offset=-1").status == 400
    assert call_as_user(cell, "GET", f"{path}/output?offset={'9' * 30}").status == 400


def test_job_that_has_no_environment(cell: ServedCell, project: int, runner: ScriptedRunner) -> None:
    cell.until_pipelines(1)
    waiting = cell.api("GET", f"/projects/{project}/jobs").json()[0]
    refused = call_as_user(cell, "POST", f"{waiting['id']}/shells", {})
    assert (refused.status, "does not run yet" in refused.json()["message"]) == (409, True)
    job = runner.take()
    runner.put(job, "running")
    runner.put(job, "failed")
    refused = call_as_user(cell, "POST", f"{job['id']}/shells", {})
    assert (refused.status, "environment is gone" in refused.json()["message"]) == (409, True)


def test_held_job(cell: ServedCell, project: int, job: dict[str, Any], runner: ScriptedRunner) -> None:
    manager = ManagerSide(cell, runner.token)
    runner.put(job, "failed")
    assert call_as_user(cell, "POST", f"{job['id']}/release").status == 409
    held = [{"job_id": job["id"], "seconds": 600}, {"job_id": 999_999, "seconds": 600}, {"job_id": -1, "seconds": 1}]
    with ThreadPoolExecutor() as pool:
        # A hold of a manager that does not have the job is ignored.
        other = pool.submit(ManagerSide(cell, cell.new_runner().token).wanted, held=held)
        poll = pool.submit(manager.wanted, held=held)
        wait_until(lambda: bool(call_as_user(cell, "GET", str(job["id"])).json()["held_until"]), "the job is held")
        listed = cell.send("GET", "/api/remuda/v1/jobs?held=true", PRIVATE_TOKEN=cell.token).json()
        assert [(row["id"], bool(row["held_until"])) for row in listed] == [(job["id"], True)]
        stranger, developer = create_user(cell, "stranger", project, 0), create_user(cell, "dev", project, 30)
        assert cell.send("GET", "/api/remuda/v1/jobs?held=true", PRIVATE_TOKEN=stranger).json() == []
        assert call_as_user(cell, "POST", f"{job['id']}/shells", {}).status == 201
        assert poll.result(20).json()["shells"]
        assert call_as_user(cell, "POST", f"{job['id']}/release", token=stranger).status == 404
        assert call_as_user(cell, "POST", f"{job['id']}/release", token=developer).status == 202
        shells = [row["id"] for row in manager.wanted(held=held).json()["shells"]]
        assert manager.wanted(held=held, shells=shells).json()["release"] == [job["id"]]
        pool.submit(manager.wanted, shells=shells)
        wait_until(lambda: not call_as_user(cell, "GET", str(job["id"])).json()["held_until"], "the job is released")
        cell.stop()
        other.result(20)


@pytest.fixture
def cells(tmp_path: Path, database: str) -> Iterator[list[ServedCell]]:
    with ExitStack() as stack:
        served = [
            stack.enter_context(ServedCell(tmp_path / "cell", database=database, public_url="http://cell.example"))
            for _ in range(2)
        ]
        for cell in served:
            cell.url = f"http://127.0.0.1:{cell.service.settings.port}"
        yield served


def test_several_processes_serve_one_shell(cells: list[ServedCell]) -> None:
    first, second = cells
    first.new_project("app", "build:\n  script: make\n")
    runner = ScriptedRunner(second, first.new_runner().token)
    job = runner.take(hold=True)
    runner.put(job, "running")
    manager = ManagerSide(second, runner.token)
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(manager.wanted)
        shell = call_as_user(first, "POST", f"{job['id']}/shells", {}).json()["id"]
        assert poll.result(20).json()["shells"][0]["id"] == shell
        path = f"{job['id']}/shells/{shell}"
        sent = b""
        for number in range(20):
            feeding = pool.submit(manager.call, "GET", f"{shell}/input", None, f"&offset={len(sent)}")
            piece = f"key {number}\n".encode()
            content_range = f"{len(sent)}-{len(sent) + len(piece) - 1}"
            assert call_as_user(first, "PATCH", f"{path}/input", piece, Content_Range=content_range).status == 202
            assert feeding.result(20).body == piece
            sent += piece
        # Each process may serve either end.
        assert ManagerSide(first, runner.token).call("GET", f"{shell}/input", None, "&offset=0").body == sent
        reading = pool.submit(call_as_user, first, "GET", f"{path}/output?offset=0")
        assert call_as_user(second, "DELETE", path).status == 204
        assert reading.result(20).headers["X-Remuda-Shell-State"] == "over"
