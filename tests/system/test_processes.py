"""Three processes serve one cell over one PostgreSQL; each is killed, and so is the database, while jobs run.

No job is lost, none is started twice, and every log is whole.
"""

import http.client
import json
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest

from remuda.testing.lab import ADMIN_TOKEN, Part, free_port
from remuda.testing.postgres_server import PostgresServer

JOBS = 2000
RUNNERS = 6
PIPELINE = "work:\n  parallel: 50\n  variables: {GIT_STRATEGY: none}\n  script: [make]\n"
PATIENCE_SECONDS = 200.0


class Cells:
    """The processes, asked like a proxy would: any of them, and another one when it does not answer."""

    def __init__(self, folder: Path, database: str) -> None:
        self.ports = [free_port() for _ in range(3)]
        environment = os.environ | {
            "REMUDA_ADMIN_TOKEN": ADMIN_TOKEN,
            "REMUDA_DATABASE": database,
            "REMUDA_PUBLIC_URL": "http://cell.example",
            "REMUDA_LEASE_SECONDS": "3",
            "REMUDA_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "remuda", "cell", "serve", "--data", str(folder / "cell"), "--listen"]
        self.parts = [
            Part(f"cell {port}", [*command, f"127.0.0.1:{port}"], environment, folder / f"{port}.out")
            for port in self.ports
        ]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """One request, sent again until somebody answers it."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", random.choice(self.ports), timeout=30)
            try:
                connection.request(method, path, data, named)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status < 500:
                    return (
                        answer.status,
                        answer.headers,
                        json.loads(content) if content.startswith((b"[", b"{")) else content,
                    )
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.05)
        raise AssertionError(f"nobody answers {method} {path}")

    def api(self, method: str, path: str, body: Any = None) -> Any:
        status, _, answer = self.call(method, f"/api/v4{path}", body, PRIVATE_TOKEN=ADMIN_TOKEN)
        assert status < 300, (method, path, answer)
        return answer


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if not PostgresServer.is_there():
        pytest.skip("PostgreSQL is not installed: make packages")
    with PostgresServer() as running:
        yield running


@pytest.mark.timeout(500)
def test_kills(tmp_path: Path, server: PostgresServer) -> None:
    cells = Cells(tmp_path, server.url())
    with ExitStack() as stack:
        for part in cells.parts:
            stack.callback(part.kill)
            part.start()
        project = cells.api("POST", "/projects", {"name": "app"})["id"]
        actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
        commit = {"branch": "main", "commit_message": "First", "actions": actions}
        cells.api("POST", f"/projects/{project}/repository/commits", commit)
        token = cells.api("POST", "/user/runners", {"runner_type": "instance_type"})["token"]
        for _ in range(JOBS // 50 - 1):
            cells.api("POST", f"/projects/{project}/pipeline", {"ref": "main"})
        started: Counter[int] = Counter()
        logs: dict[int, bytes] = {}
        done, lock = Event(), Lock()

        def work() -> None:
            while not done.is_set():
                job = claimed(cells, token)
                if job is None:
                    time.sleep(0.1)
                elif (log := run(cells, job)) is not None:
                    with lock:
                        started[job["id"]] += 1
                        logs[job["id"]] = log

        runners = [Thread(target=work, name=f"runner {number}") for number in range(RUNNERS)]
        for runner in runners:
            runner.start()
        try:
            for number in range(5):
                wanted = JOBS * (number + 1) // 8
                until = time.monotonic() + PATIENCE_SECONDS
                while len(logs) < wanted and time.monotonic() < until:
                    time.sleep(0.05)
                if number in (1, 3):
                    server.kill()
                    time.sleep(0.5)
                    server.start()
                else:
                    part = cells.parts[number % 3]
                    part.kill()
                    part.start()
            until = time.monotonic() + PATIENCE_SECONDS
            while len(logs) < JOBS and time.monotonic() < until:
                time.sleep(0.1)
        finally:
            done.set()
            for runner in runners:
                runner.join(PATIENCE_SECONDS)
        assert len(logs) == JOBS
        assert set(started.values()) == {1}
        jobs = f"/projects/{project}/jobs"
        found = [
            job for page in range(1, JOBS // 100 + 2) for job in cells.api("GET", f"{jobs}?per_page=100&page={page}")
        ]
        assert {job["id"]: job["status"] for job in found} == dict.fromkeys(logs, "success")
        for job_id, log in logs.items():
            assert cells.api("GET", f"{jobs}/{job_id}/trace") == log


def claimed(cells: Cells, token: str) -> dict[str, Any] | None:
    """A job, asked for with one and the same request however often it has to be sent."""
    body = {"token": token, "system_id": "s_1"}
    status, _, job = cells.call("POST", "/api/v4/jobs/request", body, X_Request_Id=secrets.token_hex(16))
    assert status in (201, 204), job
    return job if status == 201 else None


def run(cells: Cells, job: dict[str, Any]) -> bytes | None:
    """Do what a runner does; the log, None when the job was somebody else's by the time it was to start."""
    path = f"/api/v4/jobs/{job['id']}"

    def put(state: str) -> int:
        return cells.call("PUT", path, {"token": job["token"], "state": state}, JOB_TOKEN=job["token"])[0]

    if put("running") == 403:
        return None
    log = b"".join(f"line {number} of job {job['id']}\n".encode() for number in range(200))
    sent = 0
    while sent < len(log):
        piece = log[sent : sent + 1500]
        status, headers, _ = cells.call(
            "PATCH",
            f"{path}/trace",
            piece,
            JOB_TOKEN=job["token"],
            Content_Range=f"{sent}-{sent + len(piece) - 1}",
            Content_Type="text/plain",
        )
        assert status in (202, 416), status
        sent = int(headers["Range"].rpartition("-")[2])
    assert put("success") == 200
    return log
