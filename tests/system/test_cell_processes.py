"""Three processes serve one cell on one PostgreSQL; processes are killed or stopped, and the database is killed.

No job is lost or started twice, and every log is complete. The runners behave as if behind a proxy: any process may get
a call, and a call without an answer is sent to another process. So a process that was stopped has old calls to answer.
"""

import http.client
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from threading import Event, local
from typing import Any

import pytest
from tests.support.servers.postgres_server import PostgresServer

from remuda.testing.lab import ADMIN_TOKEN, Part, free_port
from remuda.testing.waiting import wait_until

JOBS, AT_ONCE, RUNNERS = 2000, 50, 6
PIPELINE = f"work:\n  parallel: {AT_ONCE}\n  variables: {{GIT_STRATEGY: none}}\n  script: [make]\n"
WAIT_SECONDS = 150.0
LEASE_SECONDS = 3
STOPPED_SECONDS = 5.0
"""Longer than a lease, and longer than a runner waits for an answer."""
ANSWER_SECONDS = 2.0
KILL_POINTS = ("cell.leased", "cell.acknowledged", "cell.trace_appended", "cell.finished")


class Cells:
    """The processes of the cell. Like a proxy, it sends a call to any of them, and to another if there is no answer."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(3)]
        self.environment = os.environ | {
            "REMUDA_ADMIN_TOKEN": ADMIN_TOKEN,
            "REMUDA_DATABASE": database,
            "REMUDA_PUBLIC_URL": "http://cell.example",
            "REMUDA_LEASE_SECONDS": str(LEASE_SECONDS),
            "REMUDA_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "remuda", "cell", "serve", "--data", str(folder / "cell"), "--listen"]
        self.parts = [
            Part(f"cell {port}", [*command, f"127.0.0.1:{port}"], self.environment, folder / f"{port}.out")
            for port in self.ports
        ]
        self._local = local()
        self._connections: list[http.client.HTTPConnection] = []

    def call(
        self, method: str, path: str, body: Any = None, *, seconds: float = ANSWER_SECONDS, **headers: str
    ) -> tuple[int, Any, Any]:
        """Send a request until a process answers it with a status below 500."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            port = random.choice(self.ports)
            connection = self._connection(port, seconds)
            try:
                connection.request(method, path, data, fields)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
            else:
                if answer.status < 500:
                    is_json = content.startswith((b"[", b"{"))
                    return answer.status, answer.headers, json.loads(content) if is_json else content
            time.sleep(0.05)
        raise AssertionError(f"no process answers {method} {path}")

    def _connection(self, port: int, seconds: float) -> http.client.HTTPConnection:
        pool: dict[tuple[int, float], http.client.HTTPConnection] = self._local.__dict__.setdefault("pool", {})
        if (port, seconds) not in pool:
            pool[port, seconds] = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
            self._connections.append(pool[port, seconds])
        return pool[port, seconds]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API as the administrator, with a timeout so long that a slow call is not sent twice."""
        status, _, answer = self.call(method, f"/api/v4{path}", body, seconds=60, PRIVATE_TOKEN=ADMIN_TOKEN)
        assert status < 300, (method, path, answer)
        return answer

    def restart(self, part: Part) -> None:
        part.kill()
        part.start()

    def suspend(self, part: Part) -> None:
        """Stop the process for STOPPED_SECONDS; it does not notice it."""
        assert part.process is not None
        part.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        part.process.send_signal(signal.SIGCONT)

    def kill_at_point(self, part: Part, point: str) -> None:
        """Let the process kill itself at a kill point, and restart it."""
        part.kill()
        mark = self.folder / point
        part.environment = self.environment | {"REMUDA_KILL_POINT": point, "REMUDA_KILL_MARK": str(mark)}
        part.start()
        wait_until(lambda: not part.is_alive(), f"{part.name} reaches {point}", WAIT_SECONDS)
        assert mark.exists(), part.tail()
        part.start()


class Runners:
    """Runners that take jobs and run them until `done` is set."""

    def __init__(self, cells: Cells, token: str) -> None:
        self.cells = cells
        self.token = token
        self.done = Event()
        self.logs: dict[int, bytes] = {}
        self.starts: dict[int, set[str]] = defaultdict(set)
        """Job tokens with which each job was set to running."""

    def work(self) -> None:
        while not self.done.is_set():
            job = self.request_job()
            if job is None:
                time.sleep(0.1)
            else:
                self.run(job)

    def request_job(self) -> dict[str, Any] | None:
        """Request a job; a request that is sent again has the same X-Request-Id."""
        body = {"token": self.token, "system_id": "s_1"}
        status, _, job = self.cells.call("POST", "/api/v4/jobs/request", body, X_Request_Id=secrets.token_hex(16))
        assert status in (201, 204), job
        return job if status == 201 else None

    def run(self, job: dict[str, Any]) -> None:
        """Run a job as a runner does. Does nothing if another runner has the job by now."""
        path, token = f"/api/v4/jobs/{job['id']}", job["token"]

        def put(state: str) -> int:
            return self.cells.call("PUT", path, {"token": token, "state": state}, JOB_TOKEN=token)[0]

        if (code := put("running")) == 403:
            return
        assert code == 200
        self.starts[job["id"]].add(token)
        log = b"".join(f"line {number} of job {job['id']}\n".encode() for number in range(200))
        sent = 0
        while sent < len(log):
            piece = log[sent : sent + 2000]
            status, headers, body = self.cells.call(
                "PATCH",
                f"{path}/trace",
                piece,
                JOB_TOKEN=token,
                Content_Range=f"{sent}-{sent + len(piece) - 1}",
                Content_Type="text/plain",
            )
            assert status in (202, 416), (job["id"], status, body)
            sent = int(headers["Range"].rpartition("-")[2])
        assert put("success") == 200
        self.logs[job["id"]] = log


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if not PostgresServer.is_installed():
        pytest.skip("PostgreSQL is not installed: make packages")
    with PostgresServer() as server:
        yield server


@pytest.mark.timeout(500)
def test_jobs_while_processes_and_the_database_are_killed(tmp_path: Path, server: PostgresServer) -> None:
    cells = Cells(tmp_path, server.url())
    first, second, third = cells.parts

    def restart_database() -> None:
        server.kill()
        time.sleep(0.5)
        server.start()

    faults: list[Callable[[], None]] = [
        partial(cells.restart, first),
        restart_database,
        partial(cells.suspend, second),
        *(
            partial(cells.kill_at_point, part, point)
            for part, point in zip([third, first, second, third], KILL_POINTS, strict=True)
        ),
        restart_database,
        partial(cells.suspend, third),
    ]
    with ExitStack() as stack:
        stack.callback(cells.close)
        for part in cells.parts:
            stack.callback(part.kill)
            part.start()
        project = cells.api("POST", "/projects", {"name": "app"})["id"]
        actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": PIPELINE}]
        commit = {"branch": "main", "commit_message": "First", "actions": actions}
        cells.api("POST", f"/projects/{project}/repository/commits", commit)
        for _ in range(JOBS // AT_ONCE - 1):
            cells.api("POST", f"/projects/{project}/pipeline", {"ref": "main"})
        runners = Runners(cells, cells.api("POST", "/user/runners", {"runner_type": "instance_type"})["token"])
        pool = stack.enter_context(ThreadPoolExecutor(RUNNERS))
        stack.callback(runners.done.set)
        workers: list[Future[None]] = [pool.submit(runners.work) for _ in range(RUNNERS)]

        def has_reached(count: int) -> bool:
            for worker in workers:
                if worker.done():
                    worker.result()
            return len(runners.logs) >= count

        for number, fault in enumerate(faults, 1):
            wait_until(
                partial(has_reached, JOBS * number // (len(faults) + 2)), f"jobs before fault {number}", WAIT_SECONDS
            )
            fault()
        wait_until(lambda: has_reached(JOBS), "all jobs", WAIT_SECONDS)
        runners.done.set()
        for worker in workers:
            worker.result(WAIT_SECONDS)
        assert len(runners.logs) == JOBS
        assert {len(tokens) for tokens in runners.starts.values()} == {1}
        jobs = f"/projects/{project}/jobs"
        pages = [cells.api("GET", f"{jobs}?per_page=100&page={page}") for page in range(1, JOBS // 100 + 2)]
        statuses = {job["id"]: job["status"] for page in pages for job in page}
        assert statuses == dict.fromkeys(runners.logs, "success")
        for job_id, log in runners.logs.items():
            assert cells.api("GET", f"{jobs}/{job_id}/trace") == log
    command = [sys.executable, "-m", "remuda", "cell", "check", "--data", str(tmp_path / "cell")]
    checked = subprocess.run(command, env=cells.environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.timeout(200)
def test_a_push_creates_its_pipeline_though_its_process_never_restarts(tmp_path: Path, server: PostgresServer) -> None:
    cells = Cells(tmp_path, server.url())
    dying, living, _ = cells.parts
    with ExitStack() as stack:
        stack.callback(cells.close)
        stack.callback(dying.kill)
        stack.callback(living.kill)
        cells.ports = cells.ports[1:2]
        living.start()
        project = cells.api("POST", "/projects", {"name": "app"})["id"]
        dying.environment = cells.environment | {"REMUDA_KILL_POINT": "cell.ref_updated"}
        dying.start()
        actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": "work: {script: [make]}\n"}]
        commit = {"branch": "main", "commit_message": "First", "actions": actions}
        port = int(dying.command[-1].rpartition(":")[2])
        path = f"/api/v4/projects/{project}/repository/commits"
        headers = {"PRIVATE-TOKEN": ADMIN_TOKEN, "Content-Type": "application/json"}

        def has_died() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with closing(connection), suppress(OSError, http.client.HTTPException):
                connection.request("POST", path, json.dumps(commit), headers)
                assert connection.getresponse().status == 503
            return not dying.is_alive()

        wait_until(has_died, "the process dies with the push", WAIT_SECONDS)
        wait_until(
            lambda: cells.api("GET", f"/projects/{project}/pipelines"), "the push has created a pipeline", WAIT_SECONDS
        )
        sha = cells.api("POST", f"/projects/{project}/repository/commits", commit)["id"]
        assert [pipeline["sha"] for pipeline in cells.api("GET", f"/projects/{project}/pipelines")] == [sha]
