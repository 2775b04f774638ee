"""A small, strict server of GitLab's Runner API, for tests of runner managers.

Requests that break the rules of the API are recorded in `violations`. `enqueue` adds jobs, `fail_once` replaces one
answer, `stop` and `start` simulate an outage without loss of data."""

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from remuda.testing.agent_process import plain_lines
from remuda.wire.runner_api import FEATURES, parse_content_range

RUNNER_TOKEN = "glrt-t1_abcdefghijklmnopqrst"
OTHER_TOKEN = "glrt-t1_zyxwvutsrqponmlkjihg"
_SYSTEM_ID = re.compile(r"[sr]_[0-9a-zA-Z]{12}")


@dataclass
class ServerJob:
    id: int
    payload: dict[str, Any]
    status: str = "pending"
    epoch: int = 0
    request_id: str = ""
    leased_at: float = 0.0
    trace: bytearray = field(default_factory=bytearray)
    results: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    @property
    def token(self) -> str:
        return f"glcbt-{self.id}-epoch{self.epoch}-abcdefghij"

    @property
    def is_over(self) -> bool:
        return self.status in ("success", "failed", "canceled")

    def has_grown_to(self, size: int) -> bool:
        """True if the log has at least this many bytes, or the job has ended."""
        return len(self.trace) >= size or self.is_over

    @property
    def output(self) -> bytes:
        """The complete lines that the job's commands printed to stdout, without headers (time and stream)."""
        whole = self.trace[: self.trace.rfind(b"\n") + 1]
        return b"".join(line + b"\n" for line in plain_lines(bytes(whole), b"01O"))


Fault = Callable[[web.Request], web.StreamResponse | None]


@dataclass
class Coordinator:
    is_remuda: bool = True
    hold_seconds: float = 20.0
    lease_seconds: float = 60.0
    interval: str = "1"
    jobs: dict[int, ServerJob] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    held: int = 0
    """Number of job requests that wait for a job now. If a client disconnects, its request does not count any more."""
    port: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=8 << 20, middlewares=[self._observe])
        app.router.add_post("/api/v4/jobs/request", self._request)
        app.router.add_put("/api/v4/jobs/{id}", self._update)
        app.router.add_patch("/api/v4/jobs/{id}/trace", self._trace)
        app.router.add_post("/api/v4/runners/verify", self._verify)
        app.router.add_post("/api/v4/runners", self._register)
        app.router.add_post("/api/remuda/v1/jobs/{id}/results", self._results)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def fail_once(self, endpoint: str, answer: Fault) -> None:
        """For the next request whose `METHOD path` contains `endpoint`, call `answer` with the request and send its
        result; if that is None, close the connection."""
        self.faults.append((endpoint, answer))

    async def enqueue(self, *script: str, **changes: Any) -> ServerJob:
        job = ServerJob(id=len(self.jobs) + 101, payload={})
        job.payload = {
            "allow_git_fetch": True,
            "job_info": {"id": job.id, "name": "test", "stage": "test", "time_in_queue_seconds": 1.5},
            "git_info": {"repo_url": f"{self.url}/group/project.git", "sha": "0" * 40, "ref": "main"},
            "runner_info": {"timeout": 600},
            "variables": [{"key": "GIT_STRATEGY", "value": "none", "public": True}],
            "steps": [{"name": "script", "script": list(script), "timeout": 600, "when": "on_success"}],
            "artifacts": None,
            "features": {"trace_sections": True, "failure_reasons": ["script_failure", "job_canceled"]},
        }
        job.payload |= changes
        self.jobs[job.id] = job
        await self.notify()
        return job

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until the function `true`, called after each request, returns true. TimeoutError after `seconds`."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(true)

    async def until_over(self, job: ServerJob, seconds: float = 30.0) -> None:
        await self.until(lambda: job.is_over, seconds)

    @web.middleware
    async def _observe(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        name = f"{request.method} {request.path}"
        self.requests.append((name, {key.lower(): value for key, value in request.headers.items()}))
        if not re.fullmatch(r"[0-9a-f]{32}", request.headers.get("X-Request-Id", "")):
            self.violations.append(f"{name}: no request id")
        if not request.headers["User-Agent"].startswith("remuda-manager "):
            self.violations.append(f"{name}: user agent {request.headers['User-Agent']}")
        for fault in self.faults:
            if fault[0] in name:
                self.faults.remove(fault)
                answer = fault[1](request)
                await self.notify()
                if answer is None:
                    assert request.transport is not None
                    request.transport.close()
                    return web.Response(status=500)
                return answer
        answer = await handler(request)
        await self.notify()
        return answer

    async def _request(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["token"] not in (RUNNER_TOKEN, OTHER_TOKEN) or request.headers.get("RUNNER-TOKEN") != body["token"]:
            return web.Response(status=403)
        if not _SYSTEM_ID.fullmatch(body["system_id"]) or set(body["info"]["features"]) != set(FEATURES):
            self.violations.append("jobs/request: system_id or features")
        headers = {"X-GitLab-Last-Update": "cursor"} | ({"X-Remuda-Cell": "1"} if self.is_remuda else {})
        request_id = request.headers["X-Request-Id"]
        loop = asyncio.get_running_loop()

        def find_pending() -> ServerJob | None:
            for job in self.jobs.values():
                if job.status == "leased" and loop.time() > job.leased_at + self.lease_seconds:
                    job.status = "pending"
                if job.status == "pending" or (job.status == "leased" and job.request_id == request_id):
                    return job
            return None

        if find_pending() is None and body.get("last_update"):
            self.held += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.hold_seconds), self._changed:
                        await self._changed.wait_for(find_pending)
            finally:
                self.held -= 1
                await self.notify()
        job = find_pending()
        # A client that has closed the connection gets no job.
        if job is None or request.transport is None or request.transport.is_closing():
            return web.Response(status=204, headers=headers)
        if job.request_id != request_id:
            job.epoch += 1
        job.status, job.request_id, job.leased_at = "leased", request_id, loop.time()
        payload = job.payload | {"id": job.id, "token": job.token}
        return web.json_response(payload, status=201, headers=headers)

    def _job(self, request: web.Request) -> ServerJob | None:
        job = self.jobs[int(request.match_info["id"])]
        return job if request.headers.get("JOB-TOKEN") == job.token else None

    def _headers(self, job: ServerJob) -> dict[str, str]:
        status = "running" if job.status == "leased" else job.status
        return {"Job-Status": status, "X-GitLab-Trace-Update-Interval": self.interval}

    async def _update(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        job = self._job(request)
        if job is None or body["token"] != job.token:
            return web.Response(status=403)
        job.updates.append(body)
        state = body["state"]
        if job.is_over:
            same = state == job.status or job.status == "canceled"
            return web.Response(status=200 if same else 403, headers=self._headers(job))
        if job.status == "leased":
            job.status = "running"
        if state in ("success", "failed"):
            right = {"checksum": f"crc32:{zlib.crc32(job.trace):08x}", "bytesize": len(job.trace)}
            if right | body["output"] != right:
                self.violations.append(f"final {body['output']}, the trace has {right}")
            if body.get("exit_code") == 0:
                self.violations.append("the final update has exit_code 0, which has to be left out")
            job.status = "canceled" if job.status == "canceling" else state
        return web.Response(status=200, headers=self._headers(job))

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        job = self._job(request)
        if job is None or job.is_over:
            return web.Response(status=403)
        data = await request.read()
        start = parse_content_range(request.headers["Content-Range"])
        if request.headers["Content-Range"] != f"{start}-{(start or 0) + len(data) - 1}" or not data:
            self.violations.append(f"Content-Range {request.headers['Content-Range']} for {len(data)} bytes")
        if request.headers["Content-Type"] != "text/plain" or len(data) > 1 << 20:
            self.violations.append("trace: content type or size")
        if job.status == "leased":
            self.violations.append("a trace before the job was acknowledged")
        job.offsets.append(start or 0)
        code = 202
        if start == len(job.trace):
            job.trace += data
        else:
            code = 416
        return web.Response(status=code, headers=self._headers(job) | {"Range": f"0-{len(job.trace)}"})

    async def _results(self, request: web.Request) -> web.StreamResponse:
        job = self._job(request)
        if not self.is_remuda:
            self.violations.append("results for a server that is no Remuda cell")
            return web.Response(status=404)
        if job is None or job.is_over:
            return web.Response(status=403)
        results = (await request.json())["results"]
        next_seq = len(job.results) + 1
        if results[0]["seq"] > next_seq:
            return web.json_response({"version": 1, "next_seq": next_seq}, status=409)
        job.results += [result for result in results if result["seq"] >= next_seq]
        if [result["seq"] for result in job.results] != list(range(1, len(job.results) + 1)):
            self.violations.append("results are not in order")
        return web.json_response({"version": 1, "next_seq": len(job.results) + 1})

    async def _verify(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["token"] != RUNNER_TOKEN or request.headers.get("RUNNER-TOKEN") != RUNNER_TOKEN:
            return web.json_response({"message": "403 Forbidden"}, status=403)
        return web.json_response({"id": 7, "token": RUNNER_TOKEN, "token_expires_at": None})

    async def _register(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if body["token"] != "GR1348941registration":
            return web.json_response({"message": "410 Gone"}, status=410)
        if not isinstance(body["tag_list"], str) or not isinstance(body["run_untagged"], bool):
            self.violations.append("register: tag_list or run_untagged")
        return web.json_response({"id": 8, "token": "glrtr-made-by-the-server", "token_expires_at": None}, status=201)
