"""GitLab's side of the Runner API, to the letter: every request of a manager is checked against the reference.

A test hands it jobs and, where it wants another answer than the usual one, a `plan` of answers per endpoint. Whatever a
client does that the reference does not allow is kept in `violations`; `check` at the end of a test fails on any of
them, and on answers of a plan that nobody came for. `strict_rules` has the rules for single requests; here are those
that need to know what came before: order, offsets, repeated ids, waits, calls after the end.

It is no Remuda cell, so nothing of Remuda's own may reach it.
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
"""Clocks of two processes, and the time that an answer takes, are not looked at more closely."""


@dataclass(frozen=True)
class Planned:
    """An answer in place of the usual one."""

    status: int = 0
    """0: the connection is cut."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    takes: bool = False
    """The request is also carried out, as by a server that fails afterwards."""
    waits: bool = False
    """The answer never comes; the client has to give up."""


def answer(status: int, body: bytes = b"", *, takes: bool = False, **headers: str) -> Planned:
    """`answer(503, Retry_After="1")`."""
    return Planned(status, {name.replace("_", "-"): text for name, text in headers.items()}, body, takes)


CUT = Planned()
SILENCE = Planned(waits=True)


@dataclass
class StrictJob:
    """A job as GitLab has it, and what the client may know of it."""

    id: int
    payload: dict[str, Any]
    status: str = "pending"
    trace: bytearray = field(default_factory=bytearray)
    updates: list[dict[str, Any]] = field(default_factory=list)
    patches: list[tuple[int, int]] = field(default_factory=list)
    """Start and size of each."""
    files: list[tuple[dict[str, str], str, bytes]] = field(default_factory=list)
    is_confirmed: bool = False
    """A PUT running was answered."""
    is_closed: bool = False
    """The client was told that nothing more is wanted."""
    next_start: int | None = 0
    """Where the next piece of the log has to begin; None: the client cannot know."""
    patched_at: float = LONG_AGO
    interval: float = 3.0
    early: str = ""
    """A piece that came before its time: right only if the job is at its end."""

    @property
    def token(self) -> str:
        return f"glcbt-64_{self.id:020d}"

    @property
    def is_over(self) -> bool:
        return self.status in ("success", "failed", "canceled")


class StrictGitLab:
    """The server."""

    def __init__(self, *, interval: str = "1", features: dict[str, bool], request_concurrency: int = 1) -> None:
        """`features`: exactly those that the manager has to advertise."""
        self.interval = interval
        self.jobs: dict[int, StrictJob] = {}
        self.violations: list[str] = []
        self.statuses: dict[str, list[int]] = defaultdict(list)
        """The answers given at each endpoint; 0 for none."""
        self.port = 0
        self._features = features
        self._request_concurrency = request_concurrency
        self._plans: dict[str, deque[Planned]] = {name: deque() for name in ENDPOINTS}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._ids: dict[str, tuple[str, bytes]] = {}  # calls that may be repeated, by their id
        self._spent: set[str] = set()
        self._not_before: dict[str, float] = {}  # what calls were asked to wait for, by id
        self._cursors = [""]
        self._open = 0
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

    def plan(self, endpoint: str, *answers: Planned) -> None:
        """The next calls there are answered so."""
        self._plans[endpoint] += answers

    def check(self) -> None:
        """Fail on everything that was wrong."""
        wrong = list(self.violations)
        wrong += [
            f"nobody came for {len(plan)} planned answers of {name}" for name, plan in self._plans.items() if plan
        ]
        wrong += [f"job {job.id}: {job.early}" for job in self.jobs.values() if job.early and not job.is_closed]
        assert not wrong, "\n".join(wrong)

    async def enqueue(self, *script: str, **changes: Any) -> StrictJob:
        job = StrictJob(id=len(self.jobs) + 501, payload={})
        job.payload = rules.payload(job.id, job.token, f"{self.url}/group/project.git", list(script)) | changes
        self.jobs[job.id] = job
        await self._tell()
        return job

    async def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
        """Wait until something is so; looks after every call."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(true)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _wrong(self, text: str) -> None:
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
            self._wrong(f"{call.method} {call.path}: the Runner API has no such call")
            return web.Response(status=404)
        self.violations += rules.problems(endpoint, call)
        if endpoint in ("request", "update", "trace"):
            self._look_at_id(endpoint, call)
        planned = self._plans[endpoint].popleft() if self._plans[endpoint] else None
        if planned is None or planned.takes:
            usual = await self._act(endpoint, call)
        else:
            self._look_only(endpoint, call)
        try:
            if planned is not None and planned.waits:
                self.statuses[endpoint].append(0)
                await self._tell()
                await self._gate.wait()
            if planned is not None and not planned.status:
                assert request.transport is not None
                request.transport.close()
                usual = web.Response(status=500)
                self._answered(endpoint, call, 0, {})
            elif planned is not None:
                usual = web.Response(status=planned.status, headers=planned.headers, body=planned.body)
                self._answered(endpoint, call, planned.status, planned.headers)
            else:
                self._answered(endpoint, call, usual.status, dict(usual.headers))
            return usual
        finally:
            await self._tell()

    # What came before.

    def _look_at_id(self, endpoint: str, call: rules.Call) -> None:
        """A repeated call has its id and its body again; any other has a new id; and waits are kept."""
        request_id = call.headers.get("x-request-id", "")
        if request_id in self._spent:
            self._wrong(f"{endpoint}: the id of a call that was answered is used again")
        before = self._ids.get(request_id)
        same = before is None or (before[0] == endpoint and (endpoint == "request" or before[1] == call.body))
        if not same:
            self._wrong(f"{endpoint}: a repeated call is another one than before")
        if self._now() < self._not_before.pop(request_id, 0.0) - EARLY_SECONDS:
            self._wrong(f"{endpoint}: repeated before the server wanted it")

    def _answered(self, endpoint: str, call: rules.Call, status: int, headers: dict[str, str]) -> None:
        self.statuses[endpoint].append(status)
        request_id = call.headers.get("x-request-id", "")
        if status == 0 or is_retried(status):
            self._ids[request_id] = endpoint, call.body
            if "Retry-After" in headers:
                self._not_before[request_id] = self._now() + int(headers["Retry-After"])
        elif status not in (307, 308):
            self._ids.pop(request_id, None)
            self._spent.add(request_id)
        if headers.get("X-GitLab-Last-Update"):
            self._cursors.append(headers["X-GitLab-Last-Update"])
        if endpoint in ("update", "trace"):
            self._told_of_job(endpoint, self._job(call), call, status, headers)

    def _told_of_job(
        self, endpoint: str, job: StrictJob | None, call: rules.Call, status: int, headers: dict[str, str]
    ) -> None:
        """What the client knows now."""
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

    def _look_only(self, endpoint: str, call: rules.Call) -> None:
        """A call that is answered by a plan still has to be right."""
        if endpoint in ("update", "trace") and (job := self._job(call)) is not None:
            self._look_at_job(endpoint, job, call)
        elif endpoint == "request":
            self._look_at_request(call)

    # What is done.

    async def _act(self, endpoint: str, call: rules.Call) -> web.StreamResponse:
        if endpoint == "request":
            return await self._hand_out(call)
        job = self._job(call)
        if job is None:
            return web.Response(status=404)
        if endpoint in ("update", "trace"):
            self._look_at_job(endpoint, job, call)
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

    def _look_at_request(self, call: rules.Call) -> None:
        body = call.json
        if body.get("token") != RUNNER_TOKEN:
            self._wrong(f"request: token {body.get('token')!r}")
        # The one before may be that of a request which met the newest answer on its way.
        if body.get("last_update") not in (None, *self._cursors[-2:]):
            self._wrong(f"request: last_update {body['last_update']!r}, the last ones were {self._cursors[-2:]}")
        if body.get("info", {}).get("features") != self._features:
            self._wrong("request: other features than the manager has")
        self._system_ids.add(body.get("system_id", ""))
        if len(self._system_ids) > 1:
            self._wrong(f"request: several system ids: {self._system_ids}")

    async def _hand_out(self, call: rules.Call) -> web.StreamResponse:
        self._look_at_request(call)
        if call.json.get("token") != RUNNER_TOKEN:
            return web.json_response({"message": "403 Forbidden"}, status=403)
        self._open += 1
        if self._open > self._request_concurrency:
            self._wrong(f"request: {self._open} are open, request_concurrency is {self._request_concurrency}")
        headers = {"X-GitLab-Last-Update": f"{zlib.crc32(b'cursor'):032x}"}
        pending = [job for job in self.jobs.values() if job.status == "pending"]
        try:
            if not pending and call.json.get("last_update"):
                async with self._changed:
                    await self._changed.wait_for(lambda: any(job.status == "pending" for job in self.jobs.values()))
                return web.Response(status=204)  # as workhorse does when something has changed
        finally:
            self._open -= 1
        if not pending:
            return web.Response(status=204, headers=headers)
        pending[0].status = "running"
        return web.json_response(pending[0].payload, status=201, headers=headers)

    def _job(self, call: rules.Call) -> StrictJob | None:
        return self.jobs.get(int(call.path.split("/")[4]))

    def _headers(self, job: StrictJob) -> dict[str, str]:
        return {"Job-Status": job.status, "X-GitLab-Trace-Update-Interval": self.interval}

    def _look_at_job(self, endpoint: str, job: StrictJob, call: rules.Call) -> None:
        name = f"{endpoint} of job {job.id}"
        if job.is_closed:
            self._wrong(f"{name}: the job is over, and the client knows")
        if call.headers.get("job-token") != job.token:
            self._wrong(f"{name}: token {call.headers.get('job-token')!r}")
        if endpoint == "trace":
            self._look_at_piece(job, call, name)
            return
        body = call.json
        if job.early and body.get("state") == "running":
            self._wrong(f"{name}: {job.early}")
        if not job.is_confirmed and body.get("state") == "running":
            self.violations += [f"{name}: {text}" for text in rules.acceptance_problems(body)]
        else:
            accepted = job.payload["features"]["failure_reasons"]
            self.violations += [f"{name}: {text}" for text in rules.update_problems(body, bytes(job.trace), accepted)]

    def _look_at_piece(self, job: StrictJob, call: rules.Call, name: str) -> None:
        if not job.is_confirmed:
            self._wrong(f"{name}: before the job was accepted")
        start = int(call.headers.get("content-range", "0").partition("-")[0])
        if job.next_start not in (None, start):
            self._wrong(f"{name}: begins at {start}, wanted is {job.next_start}")
        known = bytes(job.trace[start : start + len(call.body)])
        if not call.body.startswith(known):
            self._wrong(f"{name}: other bytes than before at {start}")
        if len(call.body) < rules.MOST_BYTES and self._now() < job.patched_at + job.interval - EARLY_SECONDS:
            job.early = "a piece of the log came before the interval was over, and the job was not"

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
            self._wrong(f"upload of job {job.id}: it does not run")
        filename, content = rules.the_file(call)
        job.files.append((call.query, filename, content))
        return web.json_response(201, status=201)

    def _download(self, job: StrictJob) -> web.StreamResponse:
        return web.Response(body=job.files[0][2]) if job.files else web.Response(status=404)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
