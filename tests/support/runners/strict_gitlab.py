"""A strict test server for GitLab's Runner API: it checks every request of a manager against the reference.

A test enqueues jobs and, to replace normal answers, plans answers for an endpoint with `plan`. Everything that the
reference does not allow is recorded in `violations`; `check`, at the end of a test, fails if there are violations or
unused planned answers. `strict_rules` has the rules for single requests; this module has those that depend on earlier
requests: order, offsets, repeated request ids, waits, and calls after the end.

The server is not a Remuda cell, so the manager must not send it anything that only Remuda knows.
"""

import asyncio
import zlib
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from tests.support.runners import strict_rules as rules

from remuda.wire.runner_server import is_retried

RUNNER_TOKEN = "glrt-t1_strictstrictstrict"
ENDPOINTS = ("request", "update", "trace", "upload", "download")
LONG_AGO = -1e9
EARLY_SECONDS = 0.02
"""Tolerance for waits: clocks differ, and an answer takes time."""


@dataclass(frozen=True)
class PlannedAnswer:
    """An answer that replaces the normal one."""

    status: int = 0
    """0: the connection is closed without an answer."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    processed: bool = False
    """The request is processed before this answer, as by a server that fails afterwards."""
    never_sent: bool = False
    """No answer is sent; the client must time out."""


def answer(status: int, body: bytes = b"", *, processed: bool = False, **headers: str) -> PlannedAnswer:
    """Plan an answer, for example `answer(503, Retry_After="1")`."""
    return PlannedAnswer(status, {name.replace("_", "-"): text for name, text in headers.items()}, body, processed)


CUT = PlannedAnswer()
NO_ANSWER = PlannedAnswer(never_sent=True)


@dataclass
class StrictJob:
    """A job of the server, and what the client knows about it."""

    id: int
    payload: dict[str, Any]
    status: str = "pending"
    trace: bytearray = field(default_factory=bytearray)
    updates: list[dict[str, Any]] = field(default_factory=list)
    patches: list[tuple[int, int]] = field(default_factory=list)
    """Start and size of each piece of the trace."""
    files: list[tuple[dict[str, str], str, bytes]] = field(default_factory=list)
    is_confirmed: bool = False
    """The server has answered a PUT with the state running."""
    is_closed: bool = False
    """The server has told the client that the job needs no more calls."""
    next_start: int | None = 0
    """Required start of the next piece of the trace; None: the client cannot know it."""
    patched_at: float = LONG_AGO
    interval: float = 3.0
    early_piece: str = ""
    """Violation if a piece came before the interval was over; allowed only at the end of the job."""

    @property
    def token(self) -> str:
        return f"glcbt-64_{self.id:020d}"

    @property
    def is_over(self) -> bool:
        return self.status in ("success", "failed", "canceled")


class StrictGitLab:
    def __init__(self, *, interval: str = "1", features: dict[str, bool], request_concurrency: int = 1) -> None:
        """`features` are exactly those that the manager must advertise."""
        self.interval = interval
        self.jobs: dict[int, StrictJob] = {}
        self.violations: list[str] = []
        self.statuses: dict[str, list[int]] = defaultdict(list)
        """Statuses of the answers of each endpoint; 0 for no answer."""
        self.port = 0
        self._features = features
        self._request_concurrency = request_concurrency
        self._plans: dict[str, deque[PlannedAnswer]] = {name: deque() for name in ENDPOINTS}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._repeatable: dict[str, tuple[str, bytes]] = {}  # by request id: endpoint and body of a call to repeat
        self._answered_ids: set[str] = set()
        self._not_before: dict[str, float] = {}  # by request id: the earliest time of the next attempt
        self._cursors = [""]
        self._open_requests = 0
        self._system_ids: set[str] = set()
        self._gate = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "StrictGitLab":
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{rest:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._gate.set()
        await self._runner.cleanup()

    def plan(self, endpoint: str, *answers: PlannedAnswer) -> None:
        """Plan the answers of the next calls of an endpoint."""
        self._plans[endpoint] += answers

    def check(self) -> None:
        """Fail if there are violations or unused planned answers."""
        problems = list(self.violations)
        problems += [
            f"{len(plan)} planned answers of {name} were not used" for name, plan in self._plans.items() if plan
        ]
        problems += [
            f"job {job.id}: {job.early_piece}" for job in self.jobs.values() if job.early_piece and not job.is_closed
        ]
        assert not problems, "\n".join(problems)

    async def enqueue(self, *script: str, **changes: Any) -> StrictJob:
        job = StrictJob(id=len(self.jobs) + 501, payload={})
        job.payload = rules.payload(job.id, job.token, f"{self.url}/group/project.git", list(script)) | changes
        self.jobs[job.id] = job
        await self._notify()
        return job

    async def until(self, condition: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until the condition holds; it is checked after every call."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _add_violation(self, text: str) -> None:
        self.violations.append(text)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = rules.Call(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
        )
        endpoint = rules.endpoint_of(call)
        if endpoint is None:
            self._add_violation(f"{call.method} {call.path}: the Runner API has no such call")
            return web.Response(status=404)
        self.violations += rules.problems(endpoint, call)
        if endpoint in ("request", "update", "trace"):
            self._check_request_id(endpoint, call)
        planned = self._plans[endpoint].popleft() if self._plans[endpoint] else None
        if planned is None or planned.processed:
            usual = await self._process(endpoint, call)
        else:
            self._check_only(endpoint, call)
        try:
            if planned is not None and planned.never_sent:
                self.statuses[endpoint].append(0)
                await self._notify()
                await self._gate.wait()
            if planned is not None and not planned.status:
                assert request.transport is not None
                request.transport.close()
                usual = web.Response(status=500)
                self._record_answer(endpoint, call, 0, {})
            elif planned is not None:
                usual = web.Response(status=planned.status, headers=planned.headers, body=planned.body)
                self._record_answer(endpoint, call, planned.status, planned.headers)
            else:
                self._record_answer(endpoint, call, usual.status, dict(usual.headers))
            return usual
        finally:
            await self._notify()

    # Rules that depend on earlier calls.

    def _check_request_id(self, endpoint: str, call: rules.Call) -> None:
        """A repeated call must have the same id and body, and come after Retry-After. Any other call has a new id."""
        request_id = call.headers.get("x-request-id", "")
        if request_id in self._answered_ids:
            self._add_violation(f"{endpoint}: the request id of an answered call is used again")
        before = self._repeatable.get(request_id)
        is_same = before is None or (before[0] == endpoint and (endpoint == "request" or before[1] == call.body))
        if not is_same:
            self._add_violation(f"{endpoint}: a repeated call differs from the first attempt")
        if self._now() < self._not_before.pop(request_id, 0.0) - EARLY_SECONDS:
            self._add_violation(f"{endpoint}: repeated before Retry-After")

    def _record_answer(self, endpoint: str, call: rules.Call, status: int, headers: dict[str, str]) -> None:
        self.statuses[endpoint].append(status)
        request_id = call.headers.get("x-request-id", "")
        if status == 0 or is_retried(status):
            self._repeatable[request_id] = endpoint, call.body
            if "Retry-After" in headers:
                self._not_before[request_id] = self._now() + int(headers["Retry-After"])
        elif status not in (307, 308):
            self._repeatable.pop(request_id, None)
            self._answered_ids.add(request_id)
        if headers.get("X-GitLab-Last-Update"):
            self._cursors.append(headers["X-GitLab-Last-Update"])
        if endpoint in ("update", "trace"):
            self._record_job_answer(endpoint, self._job(call), call, status, headers)

    def _record_job_answer(
        self, endpoint: str, job: StrictJob | None, call: rules.Call, status: int, headers: dict[str, str]
    ) -> None:
        """Update what the client knows about the job from an answer."""
        if job is None:
            return
        if text := headers.get("X-GitLab-Trace-Update-Interval", ""):
            job.interval = float(text)
        if (
            headers.get("Job-Status") in ("canceled", "failed")
            or status == 403
            or (endpoint, status) == ("update", 404)
        ):
            job.is_closed = True
        if endpoint == "trace":
            start = int(call.headers.get("content-range", "0").partition("-")[0])
            if status == 202:
                job.next_start = start + len(call.body)
                job.patched_at = self._now()
            elif status == 416:
                size = headers.get("Range", "").rpartition("-")[2]
                job.next_start = int(size) if size.isdigit() else 0
            elif status == 0:
                job.next_start = None
            if status != 202:
                job.patched_at = LONG_AGO
            return
        if status == 412:
            job.next_start, job.patched_at = 0, LONG_AGO
        if status in (200, 202, 400, 409) and call.json.get("state") == "running":
            job.is_confirmed = True
        if status == 200 and call.json.get("state") in ("success", "failed"):
            job.is_closed = True

    def _check_only(self, endpoint: str, call: rules.Call) -> None:
        """Check a call that gets a planned answer and is not processed."""
        if endpoint in ("update", "trace") and (job := self._job(call)) is not None:
            self._check_job(endpoint, job, call)
        elif endpoint == "request":
            self._check_job_request(call)

    # Normal processing.

    async def _process(self, endpoint: str, call: rules.Call) -> web.StreamResponse:
        if endpoint == "request":
            return await self._hand_out(call)
        job = self._job(call)
        if job is None:
            return web.Response(status=404)
        if endpoint in ("update", "trace"):
            self._check_job(endpoint, job, call)
        if call.headers.get("job-token") != job.token:
            return web.Response(status=403)
        match endpoint:
            case "update":
                return self._update(job, call)
            case "trace":
                return self._append(job, call)
            case "upload":
                return self._upload(job, call)
            case _:
                return self._download(job)

    def _check_job_request(self, call: rules.Call) -> None:
        body = call.json
        if body.get("token") != RUNNER_TOKEN:
            self._add_violation(f"request: token {body.get('token')!r}")
        # The last but one is allowed: the request may have been sent before the newest answer arrived.
        if body.get("last_update") not in (None, *self._cursors[-2:]):
            self._add_violation(
                f"request: last_update {body['last_update']!r}, the last ones were {self._cursors[-2:]}"
            )
        if body.get("info", {}).get("features") != self._features:
            self._add_violation("request: the features differ from those of the manager")
        self._system_ids.add(body.get("system_id", ""))
        if len(self._system_ids) > 1:
            self._add_violation(f"request: several system ids: {self._system_ids}")

    async def _hand_out(self, call: rules.Call) -> web.StreamResponse:
        self._check_job_request(call)
        if call.json.get("token") != RUNNER_TOKEN:
            return web.json_response({"message": "403 Forbidden"}, status=403)
        self._open_requests += 1
        if self._open_requests > self._request_concurrency:
            self._add_violation(
                f"request: {self._open_requests} are open, request_concurrency is {self._request_concurrency}"
            )
        headers = {"X-GitLab-Last-Update": f"{zlib.crc32(b'cursor'):032x}"}
        pending = [job for job in self.jobs.values() if job.status == "pending"]
        try:
            if not pending and call.json.get("last_update"):
                async with self._changed:
                    await self._changed.wait_for(lambda: any(job.status == "pending" for job in self.jobs.values()))
                return web.Response(status=204)  # as GitLab Workhorse answers a long poll after a change
        finally:
            self._open_requests -= 1
        if not pending:
            return web.Response(status=204, headers=headers)
        pending[0].status = "running"
        return web.json_response(pending[0].payload, status=201, headers=headers)

    def _job(self, call: rules.Call) -> StrictJob | None:
        return self.jobs.get(int(call.path.split("/")[4]))

    def _headers(self, job: StrictJob) -> dict[str, str]:
        return {"Job-Status": job.status, "X-GitLab-Trace-Update-Interval": self.interval}

    def _check_job(self, endpoint: str, job: StrictJob, call: rules.Call) -> None:
        name = f"{endpoint} of job {job.id}"
        if job.is_closed:
            self._add_violation(f"{name}: the client knows that the job is over")
        if call.headers.get("job-token") != job.token:
            self._add_violation(f"{name}: token {call.headers.get('job-token')!r}")
        if endpoint == "trace":
            self._check_piece(job, call, name)
            return
        body = call.json
        if job.early_piece and body.get("state") == "running":
            self._add_violation(f"{name}: {job.early_piece}")
        if not job.is_confirmed and body.get("state") == "running":
            self.violations += [f"{name}: {text}" for text in rules.acceptance_problems(body)]
        else:
            accepted = job.payload["features"]["failure_reasons"]
            self.violations += [f"{name}: {text}" for text in rules.update_problems(body, bytes(job.trace), accepted)]

    def _check_piece(self, job: StrictJob, call: rules.Call, name: str) -> None:
        if not job.is_confirmed:
            self._add_violation(f"{name}: before the job was accepted")
        start = int(call.headers.get("content-range", "0").partition("-")[0])
        if job.next_start not in (None, start):
            self._add_violation(f"{name}: begins at {start}, expected is {job.next_start}")
        stored = bytes(job.trace[start : start + len(call.body)])
        if not call.body.startswith(stored):
            self._add_violation(f"{name}: the bytes at {start} differ from those sent before")
        if len(call.body) < rules.MOST_BYTES and self._now() < job.patched_at + job.interval - EARLY_SECONDS:
            job.early_piece = "a piece of the trace came before the interval was over, but not at the end of the job"

    def _update(self, job: StrictJob, call: rules.Call) -> web.StreamResponse:
        body = call.json
        job.updates.append(body)
        if job.is_over:
            return web.Response(status=403, headers=self._headers(job))
        if body["state"] in ("success", "failed"):
            job.status = "canceled" if job.status == "canceling" else body["state"]
        return web.Response(status=200, headers=self._headers(job))

    def _append(self, job: StrictJob, call: rules.Call) -> web.StreamResponse:
        if job.is_over:
            return web.Response(status=403, headers=self._headers(job))
        start = int(call.headers["content-range"].partition("-")[0])
        job.patches.append((start, len(call.body)))
        status = 416
        if start <= len(job.trace):
            job.trace[start:] = call.body
            status = 202
        return web.Response(status=status, headers=self._headers(job) | {"Range": f"0-{len(job.trace)}"})

    def _upload(self, job: StrictJob, call: rules.Call) -> web.StreamResponse:
        if not job.is_confirmed or job.is_over:
            self._add_violation(f"upload of job {job.id}: the job is not running")
        filename, content = rules.uploaded_file(call)
        job.files.append((call.query, filename, content))
        return web.json_response(201, status=201)

    def _download(self, job: StrictJob) -> web.StreamResponse:
        return web.Response(body=job.files[0][2]) if job.files else web.Response(status=404)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
