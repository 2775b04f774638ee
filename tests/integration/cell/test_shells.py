"""Shells over HTTP: a person and a scripted manager, one process or several; and everybody who should not."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.cells.served_cell import Answer, ScriptedRunner, ServedCell

from remuda.testing.waiting import wait_until

SYSTEM = "s_0123456789ab"


class Side:
    """What a manager calls."""

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


def person(cell: ServedCell, method: str, path: str, body: Any = None, token: str = "", **headers: str) -> Answer:
    return cell.send(method, f"/api/remuda/v1/jobs/{path}", body, PRIVATE_TOKEN=token or cell.token, **headers)


def a_user(cell: ServedCell, name: str, project: int, level: int) -> str:
    made = cell.api("POST", "/users", {"username": name, "name": name, "email": f"{name}@example.com"})
    assert made.status == 201, made
    if level:
        cell.api("POST", f"/projects/{project}/members", {"user_id": made.json()["id"], "access_level": level})
    body = {"name": "t", "scopes": ["api"]}
    token: str = cell.api("POST", f"/users/{made.json()['id']}/personal_access_tokens", body).json()["token"]
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
    side = Side(cell, runner.token)
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(side.wanted)
        made = person(cell, "POST", f"{job['id']}/shells", {"command": ["ls", "-l"], "columns": 100, "rows": 30})
        assert made.status == 201, made
        shell = made.json()["id"]
        [wanted] = asking.result(20).json()["shells"]
        told = {"id": shell, "job_id": job["id"], "command": ["ls", "-l"], "columns": 100, "rows": 30}
        assert wanted | told == wanted
        assert not wanted["begun"]
        path = f"{job['id']}/shells/{shell}"
        feeding = pool.submit(side.call, "GET", f"{shell}/input", None, "&offset=0")
        assert person(cell, "PATCH", f"{path}/input", b"typed", Content_Range="0-4").status == 202
        got = feeding.result(20)
        assert (got.body, got.headers["X-Remuda-Shell-State"]) == (b"typed", "open")
        reading = pool.submit(person, cell, "GET", f"{path}/output?offset=0")
        sent = side.call("PATCH", f"{shell}/output", b"shown", Content_Range="0-4")
        assert (sent.status, sent.headers["Range"]) == (202, "0-5")
        assert reading.result(20).body == b"shown"
        assert side.call("PATCH", f"{shell}/output", b"gap", Content_Range="9-11").headers["Range"] == "0-5"
        # A manager that was started anew finds it, and is told that it is not new.
        assert side.wanted().json()["shells"][0]["begun"]
        waiting = pool.submit(person, cell, "GET", f"{path}/output?offset=5")
        assert side.call("DELETE", shell, None, "&reason=it%20has%20ended").status == 204
        assert waiting.result(20).headers["X-Remuda-Shell-State"] == "over"
    assert (
        person(cell, "GET", path).json() | {"state": "over", "reason": "it has ended"}
        == person(cell, "GET", path).json()
    )
    assert person(cell, "PATCH", f"{path}/input", b"late", Content_Range="5-8").status == 416
    events = cell.api("GET", "/audit_events?action=job_shell_opened").json()
    assert [(one["entity_type"], one["details"]["target_details"]) for one in events] == [("Project", str(job["id"]))]


def test_who_may_and_who_may_not(
    cell: ServedCell, project: int, job: dict[str, Any], runner: ScriptedRunner, tmp_path: Path
) -> None:
    made = person(cell, "POST", f"{job['id']}/shells", {}).json()
    path = f"{job['id']}/shells/{made['id']}"
    calls = [("POST", f"{job['id']}/shells"), ("GET", path), ("DELETE", path), ("GET", f"{path}/output")]
    developer, stranger = a_user(cell, "dev", project, 30), a_user(cell, "stranger", project, 0)
    for method, where in [*calls, ("PATCH", f"{path}/input")]:
        assert person(cell, method, where, token=developer).status == 403
        assert person(cell, method, where, token=stranger).status == 404
        assert person(cell, method, where, token="glpat-wrong").status == 401
        assert cell.send(method, f"/api/remuda/v1/jobs/{where}", JOB_TOKEN=job["token"]).status == 401
    # Another maintainer may open one, and not look into this one.
    maintainer = a_user(cell, "other", project, 40)
    for method, where in calls[1:]:
        assert person(cell, method, where, token=maintainer).status == 404
    assert person(cell, "POST", f"{job['id']}/shells", {}, token=maintainer).status == 201
    # Other runners, and other managers of the same one.
    for side in (Side(cell, cell.new_runner().token), Side(cell, runner.token, "s_another")):
        for method, rest in (("GET", "/input"), ("PATCH", "/output"), ("DELETE", "")):
            assert side.call(method, f"{made['id']}{rest}", Content_Range="0-0").status == 404
    assert Side(cell, "glrt-wrong").wanted().status == 403
    assert Side(cell, "glrt-wrong").call("GET", f"{made['id']}/input").status == 403
    assert cell.send("GET", f"/api/remuda/v1/runners/shells/{made['id']}/input").status == 400
    assert person(cell, "GET", path).json()["state"] == "waiting"


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
def test_bad_wishes_are_refused(cell: ServedCell, job: dict[str, Any], body: dict[str, Any]) -> None:
    assert person(cell, "POST", f"{job['id']}/shells", body).status == 400


def test_forged_names_and_pieces(cell: ServedCell, job: dict[str, Any]) -> None:
    made = person(cell, "POST", f"{job['id']}/shells", {}).json()
    for forged in ("0" * 32, "..", "%2e%2e", "..%2fheld", "a" * 5000):
        assert person(cell, "GET", f"{job['id']}/shells/{forged}").status == 404
        assert person(cell, "DELETE", f"{job['id']}/shells/{forged}").status == 404
    path = f"{job['id']}/shells/{made['id']}"
    assert person(cell, "PATCH", f"{path}/input", b"x").status == 400
    assert person(cell, "PATCH", f"{path}/input", b"x", Content_Range="lots").status == 400
    assert person(cell, "PATCH", f"{path}/input", b"x" * (1024 * 1024 + 1), Content_Range="0-1048576").status == 413
    assert person(cell, "GET", f"{path}/output?offset=-1").status == 400
    assert person(cell, "GET", f"{path}/output?offset={'9' * 30}").status == 400


def test_job_that_has_no_environment(cell: ServedCell, project: int, runner: ScriptedRunner) -> None:
    cell.until_pipelines(1)
    waiting = cell.api("GET", f"/projects/{project}/jobs").json()[0]
    refused = person(cell, "POST", f"{waiting['id']}/shells", {})
    assert (refused.status, "does not run yet" in refused.json()["message"]) == (409, True)
    job = runner.take()
    runner.put(job, "running")
    runner.put(job, "failed")
    refused = person(cell, "POST", f"{job['id']}/shells", {})
    assert (refused.status, "environment is gone" in refused.json()["message"]) == (409, True)


def test_held_job(cell: ServedCell, project: int, job: dict[str, Any], runner: ScriptedRunner) -> None:
    side = Side(cell, runner.token)
    runner.put(job, "failed")
    assert person(cell, "POST", f"{job['id']}/release").status == 409
    held = [{"job_id": job["id"], "seconds": 600}, {"job_id": 999_999, "seconds": 600}, {"job_id": -1, "seconds": 1}]
    with ThreadPoolExecutor() as pool:
        # Of a manager that has not got the job it does not count.
        other = pool.submit(Side(cell, cell.new_runner().token).wanted, held=held)
        asking = pool.submit(side.wanted, held=held)
        wait_until(lambda: bool(person(cell, "GET", str(job["id"])).json()["held_until"]), "the job is held")
        listed = cell.send("GET", "/api/remuda/v1/jobs?held=true", PRIVATE_TOKEN=cell.token).json()
        assert [(one["id"], bool(one["held_until"])) for one in listed] == [(job["id"], True)]
        stranger, developer = a_user(cell, "stranger", project, 0), a_user(cell, "dev", project, 30)
        assert cell.send("GET", "/api/remuda/v1/jobs?held=true", PRIVATE_TOKEN=stranger).json() == []
        assert person(cell, "POST", f"{job['id']}/shells", {}).status == 201
        assert asking.result(20).json()["shells"]
        assert person(cell, "POST", f"{job['id']}/release", token=stranger).status == 404
        assert person(cell, "POST", f"{job['id']}/release", token=developer).status == 202
        shells = [one["id"] for one in side.wanted(held=held).json()["shells"]]
        assert side.wanted(held=held, shells=shells).json()["release"] == [job["id"]]
        pool.submit(side.wanted, shells=shells)
        wait_until(lambda: not person(cell, "GET", str(job["id"])).json()["held_until"], "the job is let go")
        cell.stop()
        other.result(20)


@pytest.fixture
def cells(tmp_path: Path, database: str) -> Iterator[list[ServedCell]]:
    with ExitStack() as stack:
        found = [
            stack.enter_context(ServedCell(tmp_path / "cell", database=database, public_url="http://cell.example"))
            for _ in range(2)
        ]
        for cell in found:
            cell.url = f"http://127.0.0.1:{cell.service.settings.port}"
        yield found


def test_several_processes_serve_one_shell(cells: list[ServedCell]) -> None:
    one, other = cells
    one.new_project("app", "build:\n  script: make\n")
    runner = ScriptedRunner(other, one.new_runner().token)
    job = runner.take(hold=True)
    runner.put(job, "running")
    side = Side(other, runner.token)
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(side.wanted)
        shell = person(one, "POST", f"{job['id']}/shells", {}).json()["id"]
        assert asking.result(20).json()["shells"][0]["id"] == shell
        path = f"{job['id']}/shells/{shell}"
        sent = b""
        for number in range(20):
            feeding = pool.submit(side.call, "GET", f"{shell}/input", None, f"&offset={len(sent)}")
            piece = f"key {number}\n".encode()
            where = f"{len(sent)}-{len(sent) + len(piece) - 1}"
            assert person(one, "PATCH", f"{path}/input", piece, Content_Range=where).status == 202
            assert feeding.result(20).body == piece
            sent += piece
        # Each process may serve either end.
        assert Side(one, runner.token).call("GET", f"{shell}/input", None, "&offset=0").body == sent
        reading = pool.submit(person, one, "GET", f"{path}/output?offset=0")
        assert person(other, "DELETE", path).status == 204
        assert reading.result(20).headers["X-Remuda-Shell-State"] == "over"
