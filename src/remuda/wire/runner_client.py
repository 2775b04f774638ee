"""Client of the Runner API: one method for each call. HTTP statuses are returned as values; only network errors raise.

It remembers the header X-GitLab-Last-Update, which the next job request must send to be held (long poll). It does not
repeat a failed job request, so that the caller can use the job slot for another runner first. Also has calls that only
Remuda's cells serve."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from remuda.wire.runner_api import (
    JobPayload,
    RegisterRunner,
    ReportProblem,
    RequestJob,
    RunnerCredentials,
    RunnerInfo,
    StepResultsTaken,
    UpdateJob,
    VerifyRunner,
)
from remuda.wire.runner_server import (
    ATTEMPTS,
    CALL_TIMEOUT_SECONDS,
    Response,
    Server,
    is_retried,
    parse_retry_after,
)

POLL_TIMEOUT_SECONDS = 300.0
"""Longest wait for the answer to a job request. Servers hold a request for about 50 s."""
HOLD_SECONDS = 240.0
"""`hold_seconds` of a job request: how long a cell may hold it. Less than POLL_TIMEOUT_SECONDS, so that the answer
arrives in time."""
LONGEST_INTERVAL_SECONDS = 900.0


class JobReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call about a job: HTTP status, and what the server says about the job and its trace."""

    status: int
    job_status: str = ""
    """Status of the job in the server's answer; empty if the answer has none."""
    interval_seconds: float | None = None
    """Update interval that the server requests for the job."""
    size: int | None = None
    """Number of trace bytes that the server has, if its answer says so."""
    next_seq: int | None = None
    """Sequence number of the next result that the server expects, if its answer says so."""


class JobOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a job request. `payload`: the job; None if there is none, or after an error (see `problem`)."""

    status: int
    body: bytes = b""
    """The undecoded payload, to be stored unchanged."""
    payload: JobPayload | None = None
    problem: str = ""
    """Why a received job cannot be decoded."""
    rejected: tuple[int, str] | None = None
    """Id and token of a job that cannot be decoded, if at least these can be read."""
    is_remuda: bool = False
    message: str = ""
    retry_after_seconds: float | None = None
    """How long the client should wait before the next request, if the server says so."""

    @property
    def is_unanswered(self) -> bool:
        """True if a temporary error status says that the request was not processed and should be sent again."""
        return is_retried(self.status)


class RunnerReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call about the runner itself, such as register and verify: status, and the credentials if any."""

    status: int
    credentials: RunnerCredentials | None = None
    message: str = ""


class OwnReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call that GitLab does not have: status, headers, and the body, which the caller decodes."""

    status: int
    headers: Any
    body: bytes


class RunnerClient:
    def __init__(
        self,
        server: Server,
        *,
        token: str,
        system_id: str,
        info: RunnerInfo,
        load: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        """`load` is called for each job request to a Remuda cell and returns what to report there: the numbers of
        running jobs and free slots; None: nothing."""
        self._server = server
        self._token = token
        self._system_id = system_id
        self._info = info
        self._load = load
        self.cursor: str | None = None
        self.is_remuda = asyncio.Event()
        """Set when an answer shows that the server is a Remuda cell. A cell hands a job to another request if the
        client disconnects."""

    @property
    def url(self) -> str:
        return self._server.root

    @property
    def system_id(self) -> str:
        return self._system_id

    async def own(
        self,
        method: str,
        path: str,
        *,
        endpoint: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        timeout: float = CALL_TIMEOUT_SECONDS,
    ) -> OwnReply:
        """Make a call that only Remuda's cells serve, with the runner's token. `endpoint`: its name in metrics."""
        headers = {"RUNNER-TOKEN": self._token} | (headers or {})
        response = await self._call(
            method, path, endpoint=endpoint, headers=headers, body=body, timeout=timeout, attempts=1
        )
        return OwnReply(status=response.status, headers=response.headers, body=response.body)

    async def request_job(self, *, request_id: str, may_hold: bool = True) -> JobOffer:
        """Request a job once. `request_id`: the same when the request is repeated. `may_hold`: if there is no job, the
        server may delay its answer until there is one."""
        is_held = may_hold and self.cursor is not None
        message = RequestJob(
            token=self._token,
            system_id=self._system_id,
            last_update=self.cursor if is_held else None,
            info=self._info,
            load=self._load() if self.is_remuda.is_set() else None,
            hold_seconds=HOLD_SECONDS if is_held and self.is_remuda.is_set() else None,
        )
        response = await self._call(
            "POST",
            "/api/v4/jobs/request",
            endpoint="request_job",
            headers={"RUNNER-TOKEN": self._token, "Accept": "application/json"},
            body=message,
            timeout=POLL_TIMEOUT_SECONDS,
            request_id=request_id,
            attempts=1,
        )
        is_remuda = "X-Remuda-Cell" in response.headers
        if response.status != 201:
            return JobOffer(
                status=response.status,
                is_remuda=is_remuda,
                message=response.message,
                retry_after_seconds=parse_retry_after(response.headers, self._server.clock.wall()),
            )
        try:
            if not response.is_json:
                raise msgspec.DecodeError("the answer is not application/json")
            payload = read_payload(response.body)
        except msgspec.MsgspecError as error:
            return JobOffer(status=201, problem=str(error), rejected=read_identity(response.body), is_remuda=is_remuda)
        return JobOffer(status=201, body=response.body, payload=payload, is_remuda=is_remuda)

    async def update_job(self, job_id: int, token: str, update: UpdateJob) -> JobReply:
        """Report the state of a job: `running` to acknowledge the job, and later to show that it still runs; `success`
        or `failed` at the end. `update` needs no token, `info` and checksum. Its `output` has size and checksum of the
        trace (the log)."""
        update = msgspec.structs.replace(
            update, token=token, info=self._info, checksum=update.output.checksum if update.output else None
        )
        path = f"/api/v4/jobs/{job_id}"
        return _reply(await self._call("PUT", path, endpoint="update_job", headers={"JOB-TOKEN": token}, body=update))

    async def patch_trace(
        self, job_id: int, token: str, start: int, data: bytes, *, is_traced: bool = False
    ) -> JobReply:
        """Append bytes to the trace (the log) of a job at the server, at the byte offset `start`. `is_traced`: it may
        show secrets, because scripts print their commands (CI_DEBUG_TRACE)."""
        return _reply(
            await self._call(
                "PATCH",
                f"/api/v4/jobs/{job_id}/trace?debug_trace={str(is_traced).lower()}",
                endpoint="patch_trace",
                headers={
                    "JOB-TOKEN": token,
                    "Content-Range": f"{start}-{start + len(data) - 1}",
                    "Content-Type": "text/plain",
                },
                body=data,
            )
        )

    async def send_results(self, job_id: int, token: str, results: Sequence[bytes]) -> JobReply:
        """Send step results (JSON objects with their `seq`) to a Remuda cell."""
        body = b'{"version":1,"results":[' + b",".join(results) + b"]}"
        headers = {"JOB-TOKEN": token, "Content-Type": "application/json", "Accept": "application/json"}
        path = f"/api/remuda/v1/jobs/{job_id}/results"
        response = await self._call("POST", path, endpoint="send_results", headers=headers, body=body)
        reply = _reply(response)
        try:
            taken = msgspec.json.decode(response.body, type=StepResultsTaken)
        except msgspec.MsgspecError:
            return reply
        return JobReply(status=reply.status, job_status=reply.job_status, next_seq=taken.next_seq)

    async def report_problem(self, problem: str) -> int:
        """Tell a Remuda cell why this manager requests no jobs for the runner, until its next job request. Returns the
        HTTP status: 404 from a server that does not have this call."""
        message = ReportProblem(system_id=self._system_id, info=self._info, problem=problem)
        reply = await self.own(
            "POST", "/api/remuda/v1/runners/problem", endpoint="problem", body=msgspec.json.encode(message)
        )
        return reply.status

    async def verify(self) -> RunnerReply:
        message = VerifyRunner(token=self._token, system_id=self._system_id, info=self._info)
        return await self._credentials("/api/v4/runners/verify", "verify", message, expected=200)

    async def register(self, message: RegisterRunner) -> RunnerReply:
        """Register a runner with a registration token, which is this client's token."""
        message = msgspec.structs.replace(message, token=self._token, info=self._info)
        return await self._credentials("/api/v4/runners", "register", message, expected=201)

    async def unregister(self) -> RunnerReply:
        """Remove the runner from the server; with a `glrt-` token only this manager of the runner."""
        message = VerifyRunner(token=self._token)
        path = "/api/v4/runners"
        if is_created_token(self._token):
            path, message.system_id = f"{path}/managers", self._system_id
        headers = {"RUNNER-TOKEN": self._token}
        response = await self._call("DELETE", path, endpoint="unregister", headers=headers, body=message)
        return RunnerReply(status=response.status, message=response.message)

    async def reset_token(self, *, runner_id: int = 0, personal: str = "") -> RunnerReply:
        """Replace the token of this client's runner, or of `runner_id` if `personal`, a user's access token, is set."""
        headers = {"Accept": "application/json"}
        body: bytes | msgspec.Struct
        if personal:
            path, body = f"/api/v4/runners/{runner_id}/reset_authentication_token", b"{}"
            headers["PRIVATE-TOKEN"] = personal
        else:
            path, body = "/api/v4/runners/reset_authentication_token", VerifyRunner(token=self._token)
            headers["RUNNER-TOKEN"] = self._token
        response = await self._call("POST", path, endpoint="reset_token", headers=headers, body=body)
        if response.status != 201 or not response.is_json:
            return RunnerReply(status=response.status, message=response.message)
        try:
            values = {"id": runner_id} | msgspec.json.decode(response.body, type=dict)
            credentials = msgspec.convert(values, RunnerCredentials)
        except msgspec.MsgspecError as error:
            return RunnerReply(status=response.status, message=f"the answer cannot be read: {error}")
        return RunnerReply(status=response.status, credentials=credentials)

    async def _credentials(self, path: str, endpoint: str, message: msgspec.Struct, *, expected: int) -> RunnerReply:
        headers = {"RUNNER-TOKEN": self._token, "Accept": "application/json"}
        response = await self._call("POST", path, endpoint=endpoint, headers=headers, body=message)
        if response.status != expected or not response.is_json:
            return RunnerReply(status=response.status, message=response.message)
        try:
            credentials = msgspec.json.decode(response.body, type=RunnerCredentials)
        except msgspec.MsgspecError as error:
            return RunnerReply(status=response.status, message=f"the answer cannot be read: {error}")
        return RunnerReply(status=response.status, credentials=credentials)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        endpoint: str,
        headers: dict[str, str],
        body: msgspec.Struct | bytes,
        timeout: float = CALL_TIMEOUT_SECONDS,
        request_id: str | None = None,
        attempts: int = ATTEMPTS,
    ) -> Response:
        response = await self._server.call(
            method,
            path,
            endpoint=endpoint,
            headers=headers,
            body=body,
            timeout=timeout,
            request_id=request_id,
            attempts=attempts,
        )
        if response.headers.get("X-GitLab-Last-Update"):
            self.cursor = response.headers["X-GitLab-Last-Update"]
        if "X-Remuda-Cell" in response.headers:
            self.is_remuda.set()
        return response


def is_created_token(token: str) -> bool:
    """True if the token is of a runner that was created on the server (`glrt-`), not of one that registered itself."""
    return re.match(r"(?:[a-z0-9_]+-)*?glrt-", token) is not None


def _reply(response: Response) -> JobReply:
    interval = response.headers.get("X-GitLab-Trace-Update-Interval", "").strip()
    seconds = min(float(interval), LONGEST_INTERVAL_SECONDS) if interval.isascii() and interval.isdigit() else 0.0
    size = response.headers.get("Range", "").strip().rpartition("-")[2]
    return JobReply(
        status=response.status,
        job_status=response.headers.get("Job-Status", ""),
        interval_seconds=seconds or None,
        size=int(size) if size.isascii() and size.isdigit() and len(size) <= 18 else None,
    )


def read_payload(body: bytes) -> JobPayload:
    """Decode a job's payload; a null that its type does not allow becomes the default. Raises msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(body, type=JobPayload)
    except msgspec.ValidationError:
        return msgspec.convert(_remove_nulls(msgspec.json.decode(body)), JobPayload)


def _remove_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _remove_nulls(item) for key, item in value.items() if item is not None}
    return [_remove_nulls(item) for item in value] if isinstance(value, list) else value


def read_identity(body: bytes) -> tuple[int, str] | None:
    """Read only id and token from the payload of a job that `read_payload` cannot decode, so that the job can be
    reported as failed. None if these cannot be read either."""
    try:
        payload = msgspec.json.decode(body)
        return int(payload["id"]), str(payload["token"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None
