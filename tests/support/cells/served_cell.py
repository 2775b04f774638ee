"""A real cell on loopback in a thread of the test's process, and a minimal client of the Runner API.

For tests of the cell's HTTP interface: sockets, git and stores are real, only the process is shared. Tests that kill
processes use `remuda.testing.lab`.
"""

import asyncio
import functools
import http.client
import json
import secrets
import ssl
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote, urlsplit

from remuda.cell.service import CellService
from remuda.cell.settings import CellSettings
from remuda.lib.clock import Clock
from remuda.telemetry.logs import configure
from remuda.testing.waiting import wait_until

FEATURES = dict.fromkeys(
    (
        "artifacts_exclude",
        "fallback_cache_keys",
        "refspecs",
        "return_exit_code",
        "two_phase_job_commit",
        "upload_multiple_artifacts",
        "vault_secrets",
    ),
    True,
)
"""Default features of a scripted runner."""

FINAL_STATUSES = ("success", "failed", "canceled")
"""Final statuses of a pipeline."""
ADMIN_TOKEN = "glpat-served-cell-administrator"
HOLD_SECONDS = 240
"""`hold_seconds` of a scripted runner's long polls."""
_START_SECONDS = 20
_STOP_SECONDS = 20


@functools.cache
def log_errors_only() -> None:
    """Configure logs once per process, to the original stderr: pytest replaces sys.stderr for each test."""
    configure(level="error", log_format="text", stream=sys.__stderr__)


class Answer:
    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:300]!r}>"


class Caller(Protocol):
    """Sends requests with a token: a served cell or a person."""

    def api(self, method: str, path: str, body: Any = None) -> Answer: ...


def commit_file(caller: Caller, project: int, content: str, path: str = ".gitlab-ci.yml", **more: str) -> None:
    """Commit one file. `more` has other values than these: branch, commit_message, and the action of the file."""
    action = {"action": more.pop("action", "create"), "file_path": path, "content": content}
    body = {"branch": "main", "commit_message": "First commit", "actions": [action], **more}
    committed = caller.api("POST", f"/projects/{project}/repository/commits", body)
    assert committed.status == 201, committed


class ServedCell:
    """A cell that runs while the `with` block runs."""

    def __init__(self, folder: Path, clock: Clock | None = None, **settings: Any) -> None:
        # Longer than the timeout of `connect`: a held poll that is not woken fails its test.
        defaults: dict[str, Any] = {"data": folder, "port": 0, "admin_token": ADMIN_TOKEN, "poll_hold_seconds": 120}
        self.settings = CellSettings(**(defaults | settings))
        self.service = CellService(self.settings, clock)
        self.authority: Path | None = None
        """Certificate of the authority that signed that of the cell, for a cell with TLS."""
        self.url = ""
        self.token = self.settings.admin_token or ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._served = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="served-cell", daemon=True)

    def __enter__(self) -> Self:
        log_errors_only()
        self._thread.start()
        assert self._served.wait(_START_SECONDS), "the cell did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)
        assert not self._thread.is_alive(), "the cell did not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the test's thread
            self._failure = error
        finally:
            self._served.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(url: str) -> None:
            self.url = url
            self.token = self.token or self.service.admin_token_generated or ""
            self._served.set()

        await self.service.run(self._stop, ready=ready)

    def connect(self, seconds: float = 30) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        assert address.hostname
        if address.scheme == "https":
            context = ssl.create_default_context(cafile=str(self.authority))
            return http.client.HTTPSConnection(address.hostname, address.port, timeout=seconds, context=context)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=seconds)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request. A body that is neither bytes nor an iterator is sent as JSON. In header names, underscores
        stand for hyphens."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes) and not hasattr(body, "__next__"):
            body = json.dumps(body).encode()
            fields.setdefault("Content-Type", "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, body, fields, encode_chunked=hasattr(body, "__next__"))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request below /api/v4 with the administrator's token."""
        return self.send(method, f"/api/v4{path}", body, **({"PRIVATE_TOKEN": self.token} | headers))

    def until_metric(self, line: str) -> None:
        """Wait until the cell's metrics contain this line."""
        wait_until(lambda: f"\n{line}\n" in self.send("GET", "/-/metrics").body.decode(), line)

    def until_pipelines(self, count: int, project: str = "root/app") -> list[dict[str, Any]]:
        """Wait until the project has `count` pipelines. Returns them, newest first."""

        def list_pipelines() -> list[dict[str, Any]]:
            pipelines: list[dict[str, Any]] = self.api("GET", f"/projects/{quote(project, safe='')}/pipelines").json()
            return pipelines if len(pipelines) >= count else []

        return wait_until(list_pipelines, f"{count} pipelines")

    async def wait_for_jobs(self, pipelines: int = 1, seconds: float = 90) -> dict[str, dict[str, Any]]:
        """Wait until the newest pipeline of project 1 has ended. Returns its jobs by name.

        `pipelines` is the number of pipelines that the project has then. Each job has the keys `log` and `steps`, the
        results of its finished steps by path.
        """

        def wait() -> dict[str, dict[str, Any]]:
            path = f"/projects/1/pipelines/{self.until_pipelines(pipelines)[0]['id']}"
            wait_until(lambda: self.api("GET", path).json()["status"] in FINAL_STATUSES, "the pipeline ends", seconds)
            jobs = {job["name"]: job for job in self.api("GET", f"{path}/jobs").json()}
            for job in jobs.values():
                job["log"] = self.api("GET", f"/projects/1/jobs/{job['id']}/trace").body.decode()
                steps = self.send("GET", f"/api/remuda/v1/jobs/{job['id']}/steps", PRIVATE_TOKEN=self.token).json()
                job["steps"] = {step["path"]: step for step in steps["results"] if step["event"] == "finished"}
            return jobs

        return await asyncio.to_thread(wait)

    def new_project(self, name: str, pipeline_file: str = "", **files: str) -> int:
        """Create a project, with one commit if there are files. Returns its id."""
        created = self.api("POST", "/projects", {"name": name})
        assert created.status == 201, created
        project_id = int(created.json()["id"])
        if pipeline_file:
            files[".gitlab-ci.yml"] = pipeline_file
        if files:
            actions = [{"action": "create", "file_path": path, "content": text} for path, text in files.items()]
            body = {"branch": "main", "commit_message": "First commit", "actions": actions}
            committed = self.api("POST", f"/projects/{project_id}/repository/commits", body)
            assert committed.status == 201, committed
        return project_id

    def disable_job_token_allowlist(self, project: int | str) -> None:
        """Disable a project's job token allowlist: jobs of other projects then have the access of their users."""
        path = quote(str(project), safe="")
        changed = self.api("PATCH", f"/projects/{path}/job_token_scope", {"enabled": False})
        assert changed.status == 204, changed

    def new_runner(self, **settings: Any) -> "ScriptedRunner":
        """Create a runner for all projects."""
        created = self.api("POST", "/user/runners", {"runner_type": "instance_type", **settings})
        assert created.status == 201, created
        return ScriptedRunner(self, created.json()["token"])


class ScriptedRunner:
    """A client of the Runner API. It returns every answer to the test, which checks it."""

    def __init__(self, cell: ServedCell, token: str) -> None:
        self.cell = cell
        self.token = token
        self.cursor: str | None = None

    def ask(self, *, request_id: str = "", hold: bool = False, **more: Any) -> Answer:
        """POST /jobs/request."""
        body = {"token": self.token, "system_id": "s_0123456789ab", "info": {"features": FEATURES}, **more}
        if hold:
            body |= {"last_update": self.cursor or "0", "hold_seconds": HOLD_SECONDS} | more
        headers = {"RUNNER_TOKEN": self.token, "X_Request_Id": request_id or secrets.token_hex(16)}
        answer = self.cell.send("POST", "/api/v4/jobs/request", body, **headers)
        self.cursor = answer.headers.get("X-GitLab-Last-Update") or self.cursor
        return answer

    def take(self, **more: Any) -> dict[str, Any]:
        """Request a job, which must be available. Returns its payload."""
        answer = self.ask(**more)
        assert answer.status == 201, answer
        job: dict[str, Any] = answer.json()
        return job

    def put(self, job: Mapping[str, Any], state: str, **more: Any) -> Answer:
        """PUT /jobs/:id."""
        body = {"token": job["token"], "state": state, **more}
        return self.cell.send("PUT", f"/api/v4/jobs/{job['id']}", body, JOB_TOKEN=job["token"])

    def patch(self, job: Mapping[str, Any], start: int, data: bytes, *, is_traced: bool = False) -> Answer:
        """PATCH /jobs/:id/trace. `is_traced`: the job runs with CI_DEBUG_TRACE."""
        return self.cell.send(
            "PATCH",
            f"/api/v4/jobs/{job['id']}/trace?debug_trace={str(is_traced).lower()}",
            data,
            JOB_TOKEN=job["token"],
            Content_Range=f"{start}-{start + len(data) - 1}",
            Content_Type="text/plain",
        )

    def upload(
        self, job: Mapping[str, Any], content: bytes, *, filename: str = "artifacts.zip", query: str = ""
    ) -> Answer:
        """POST /jobs/:id/artifacts, with chunked encoding as a runner does it."""
        boundary = "1234567890boundary"
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        whole = head + content + f"\r\n--{boundary}--\r\n".encode()
        pieces = (whole[start : start + 50_000] for start in range(0, len(whole), 50_000))
        return self.cell.send(
            "POST",
            f"/api/v4/jobs/{job['id']}/artifacts{query}",
            pieces,
            JOB_TOKEN=job["token"],
            Content_Type=f"multipart/form-data; boundary={boundary}",
        )

    def download(self, job: Mapping[str, Any], of: int) -> Answer:
        """GET /jobs/:id/artifacts of the job `of`, with the token of `job`."""
        return self.cell.send("GET", f"/api/v4/jobs/{of}/artifacts?direct_download=true", JOB_TOKEN=job["token"])
