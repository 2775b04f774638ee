"""Client of the Runner API: one method per call, statuses come back as values, only the network raises.

Decides what every call has in common: headers, request ids, retries inside one call (408, 429 and 5xx, five attempts,
the server's own wait or a growing one), which answers count as JSON, which redirects are followed, and what is
remembered (the long-poll cursor). What an answer means for a job is decided by the caller, and so is when a request for
a job is repeated: the slot that it holds is of use to others meanwhile. Also knows Remuda's own results endpoint.

Every call carries a token, in a header and often in the body, so it goes to the configured server alone: a redirect to
another one is not followed, and comes back as the answer.

A call is safe to repeat: the server's handlers are idempotent, and all attempts of one call carry the same
`X-Request-Id`, by which a cell recognises a request for a job that it has already answered.
"""

import asyncio
import json
import os
import platform
import random
import re
import ssl
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_api import (
    JobPayload,
    RegisterRunner,
    RequestJob,
    RunnerCredentials,
    RunnerInfo,
    StepResultsTaken,
    TraceOutput,
    UpdateJob,
    VerifyRunner,
)

ATTEMPTS = 5
MOST_REDIRECTS = 5
REDIRECTS = (307, 308)
"""Those that keep method and body; after any other the call would be another one."""
POLL_TIMEOUT_SECONDS = 300.0
"""Longest wait for the answer to a request for a job; servers hold it for 50 s."""
CALL_TIMEOUT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 300.0
"""A server that asks for a longer wait inside one call is not obeyed; the caller comes back later anyway."""
LONGEST_INTERVAL_SECONDS = 900.0
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
_BACKOFF = Backoff(first_seconds=0.1, ceiling_seconds=60.0)
_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
_USER_AGENT = f"remuda-manager {__version__} ({_PYTHON}; {platform.system().lower()}/{platform.machine()})"


class RunnerApiTemporaryError(Exception):
    """The server could not be reached, or the connection broke; trying again may help."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP exchange, for whoever counts them."""

    endpoint: str
    method: str
    status: int
    seconds: float


class JobReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call with a job token."""

    status: int
    job_status: str = ""
    """The server's word for the job's state; empty when it did not say."""
    interval_seconds: float | None = None
    """How often the server wants to hear from the job."""
    size: int | None = None
    """How much of the trace the server has, where it said so."""
    next_seq: int | None = None
    """The next result the server wants, where it said so."""


class JobOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request for a job; `payload` is set when there is one."""

    status: int
    body: bytes = b""
    """The payload as it came, to be stored unchanged."""
    payload: JobPayload | None = None
    problem: str = ""
    """Why a job that came could not be read."""
    rejected: tuple[int, str] | None = None
    """Id and token of such a job, if at least those could be read."""
    is_remuda: bool = False
    message: str = ""
    retry_after_seconds: float | None = None
    """How long the server asks to wait before the next request."""

    @property
    def is_unanswered(self) -> bool:
        """Whether the same request is to be made again: the answer says nothing about jobs."""
        return is_retried(self.status)


class RunnerReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to register and verify."""

    status: int
    credentials: RunnerCredentials | None = None
    message: str = ""


class OwnReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a call that only Remuda has."""

    status: int
    headers: Any
    body: bytes


class _Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Any
    body: bytes

    @property
    def is_json(self) -> bool:
        return bool(self.headers.get("Content-Type", "").partition(";")[0].strip().lower() == "application/json")

    @property
    def message(self) -> str:
        if self.status in REDIRECTS:
            where = urlsplit(self.headers.get("Location", ""))
            return f"it redirects to {where.scheme}://{where.hostname}, where tokens are not sent; correct the url"
        try:
            found = json.loads(self.body).get("message", "") if self.is_json else ""
        except (ValueError, AttributeError):
            return ""
        return found if isinstance(found, str) else json.dumps(found)


def api_root(url: str) -> str:
    """Where a server's API begins: its address without a last `/` and `/ci`."""
    return f"{url.rstrip('/').removesuffix('/ci').rstrip('/')}"


def tls_context(*, ca_file: str = "", cert_file: str = "", key_file: str = "") -> ssl.SSLContext:
    """TLS 1.2 or newer, trusting an own authority and showing an own certificate where given."""
    context = ssl.create_default_context(cafile=ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


def new_session() -> HttpSession:
    """A pool of connections for any number of clients."""
    return HttpSession({"User-Agent": _USER_AGENT})


def environment_proxy(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY ask for; looked up once, not at every call."""
    if not any(name.lower() in _PROXIES for name in os.environ):
        return None
    import urllib.request  # not at the top: most have no proxy, and all would pay for it

    parts = urlsplit(url)
    proxies = urllib.request.getproxies_environment()
    if urllib.request.proxy_bypass(parts.netloc, proxies):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


class RunnerClient:
    """Calls one server on behalf of one runner."""

    def __init__(
        self,
        *,
        url: str,
        token: str,
        system_id: str,
        info: RunnerInfo,
        session: HttpSession,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        measure: Callable[[Measured], None] = lambda _: None,
        on_retry: Callable[[str, str], None] = lambda _path, _method: None,
        load: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        """`on_retry` is told of every repeated attempt: what kind of call it is, and its method.

        `load` says what a cell is told with every request for a job: how many the manager has, and room for.
        """
        self._root = api_root(url)
        self._token = token
        self._system_id = system_id
        self._info = info
        self._session = session
        self._clock = clock
        self._tls = tls if urlsplit(url).scheme == "https" else None
        self._proxy = environment_proxy(url)
        self._measure = measure
        self._on_retry = on_retry
        self._load = load
        self.cursor: str | None = None
        self.is_remuda = asyncio.Event()
        """Set once the server has said that it is a Remuda cell: who hangs up there leaves a job to others."""

    @property
    def url(self) -> str:
        return self._root

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
        """A call that only Remuda has, with the runner's token."""
        shown = {"RUNNER-TOKEN": self._token} | (headers or {})
        found = await self._call(method, path, endpoint=endpoint, headers=shown, body=body, timeout=timeout, attempts=1)
        return OwnReply(status=found.status, headers=found.headers, body=found.body)

    async def request_job(self, *, request_id: str, may_hold: bool = True) -> JobOffer:
        """Ask for a job. Without `may_hold` the server answers at once instead of holding the request."""
        message = RequestJob(
            token=self._token,
            system_id=self._system_id,
            last_update=self.cursor if may_hold else None,
            info=self._info,
            load=self._load() if self.is_remuda.is_set() else None,
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
                retry_after_seconds=asked_wait(response.headers, self._clock.now()),
            )
        try:
            if not response.is_json:
                raise msgspec.DecodeError("the answer is not application/json")
            payload = read_payload(response.body)
        except msgspec.MsgspecError as error:
            return JobOffer(status=201, problem=str(error), rejected=_identity(response.body), is_remuda=is_remuda)
        return JobOffer(status=201, body=response.body, payload=payload, is_remuda=is_remuda)

    async def update_job(
        self,
        job_id: int,
        token: str,
        *,
        state: str,
        failure_reason: str | None = None,
        exit_code: int = 0,
        output: TraceOutput | None = None,
    ) -> JobReply:
        """PUT a state: running to acknowledge and to stay alive, success or failed at the end."""
        message = UpdateJob(
            token=token,
            info=self._info,
            state=state,
            failure_reason=failure_reason,
            checksum=output.checksum if output else None,
            output=output,
            exit_code=exit_code or None,
        )
        path = f"/api/v4/jobs/{job_id}"
        return _reply(await self._call("PUT", path, endpoint="update_job", headers={"JOB-TOKEN": token}, body=message))

    async def patch_trace(self, job_id: int, token: str, start: int, data: bytes) -> JobReply:
        """Append bytes to the trace at an offset."""
        return _reply(
            await self._call(
                "PATCH",
                f"/api/v4/jobs/{job_id}/trace?debug_trace=false",
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
        """Hand over step results (JSON objects with their `seq`) to a Remuda cell."""
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

    async def verify(self) -> RunnerReply:
        """Whether the server knows this runner's token."""
        message = VerifyRunner(token=self._token, system_id=self._system_id, info=self._info)
        return await self._credentials("/api/v4/runners/verify", "verify", message, expected=200)

    async def register(self, message: RegisterRunner) -> RunnerReply:
        """Make a runner with a registration token (this client's token)."""
        message = msgspec.structs.replace(message, token=self._token, info=self._info)
        return await self._credentials("/api/v4/runners", "register", message, expected=201)

    async def unregister(self) -> RunnerReply:
        """Take this runner off the server; with a `glrt-` token only this manager of it."""
        message = VerifyRunner(token=self._token)
        path = "/api/v4/runners"
        if is_created_token(self._token):
            path, message.system_id = f"{path}/managers", self._system_id
        headers = {"RUNNER-TOKEN": self._token}
        response = await self._call("DELETE", path, endpoint="unregister", headers=headers, body=message)
        return RunnerReply(status=response.status, message=response.message)

    async def reset_token(self, *, runner_id: int = 0, personal: str = "") -> RunnerReply:
        """A new token in place of this runner's own: by that token, or by a person's for the runner of a number."""
        path, headers = "/api/v4/runners/reset_authentication_token", {"Accept": "application/json"}
        body: bytes | msgspec.Struct = VerifyRunner(token=self._token)
        if personal:
            path, body = f"/api/v4/runners/{runner_id}/reset_authentication_token", b"{}"
            headers["PRIVATE-TOKEN"] = personal
        response = await self._call("POST", path, endpoint="reset_token", headers=headers, body=body)
        if response.status != 201 or not response.is_json:
            return RunnerReply(status=response.status, message=response.message)
        try:
            found = {"id": runner_id} | msgspec.json.decode(response.body, type=dict)
            credentials = msgspec.convert(found, RunnerCredentials)
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
    ) -> _Response:
        headers = {"X-Request-Id": request_id or new_request_id(), "Content-Type": "application/json"} | headers
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)

        async def attempt() -> _Response:
            began = self._clock.monotonic()
            status = -1
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._exchange(method, path, headers, data)
                status = answer.status
                return answer
            except TimeoutError:
                raise RunnerApiTemporaryError(f"{self._root} did not answer within {timeout:.0f} s") from None
            except (OSError, ValueError) as error:
                raise RunnerApiTemporaryError(f"{self._root}: {str(error) or type(error).__name__}") from error
            finally:
                seconds = self._clock.monotonic() - began
                self._measure(Measured(endpoint=endpoint, method=method.lower(), status=status, seconds=seconds))

        response = await self._retried(attempt, attempts, retried=lambda: self._on_retry(endpoint, method.lower()))
        if response.headers.get("X-GitLab-Last-Update"):
            self.cursor = response.headers["X-GitLab-Last-Update"]
        if "X-Remuda-Cell" in response.headers:
            self.is_remuda.set()
        return response

    async def _exchange(self, method: str, path: str, headers: dict[str, str], data: bytes) -> _Response:
        """One request with its redirects."""
        url = self._root + path
        for _ in range(MOST_REDIRECTS + 1):
            tls = self._tls if urlsplit(url).scheme == "https" else None
            async with self._session.request(
                method, url, data=data, headers=headers, tls=tls, proxy=self._proxy
            ) as answer:
                response = _Response(status=answer.status, headers=answer.headers, body=await answer.read())
            target = redirected(url, answer.headers.get("Location", "")) if answer.status in REDIRECTS else None
            if target is None:
                break
            url = target
        return response

    async def _retried(
        self, attempt: Callable[[], Awaitable[_Response]], attempts: int, *, retried: Callable[[], None]
    ) -> _Response:
        for failures in range(1, attempts):
            response = await attempt()
            # A job that is over stays so, however often one asks.
            if not is_retried(response.status) or response.headers.get("Job-Status") in ("canceled", "failed"):
                return response
            wait = asked_wait(response.headers, self._clock.now())
            if wait is None:
                wait = _BACKOFF.delay(failures, jitter=random.random())
            if wait > LONGEST_WAIT_SECONDS:
                return response
            await self._clock.sleep(wait)
            retried()
        return await attempt()


def is_created_token(token: str) -> bool:
    """Whether a token is that of a runner which was created on the server, and not of one that registered itself."""
    return re.match(r"(?:[a-z0-9_]+-)*?glrt-", token) is not None


def new_request_id() -> str:
    """A name for one call."""
    return uuid.uuid4().hex


def is_retried(status: int) -> bool:
    """Whether a status is worth another attempt inside the same call."""
    return status in (408, 429, 500, 502, 503, 504) or status >= 512


def redirected(url: str, location: str) -> str | None:
    """Where a call goes on; None when that is not the same server, or worse protected."""
    try:
        old, new = urlsplit(url), urlsplit(urljoin(url, location))
        same = (new.scheme, new.hostname, new.port) == (old.scheme, old.hostname, old.port)
        upgraded = (old.scheme, new.scheme) == ("http", "https") and new.hostname == old.hostname
        standard = old.port in (None, 80) and new.port in (None, 443)
    except ValueError:
        return None
    return new.geturl() if location and (same or (upgraded and standard)) else None


def asked_wait(headers: Any, now: float) -> float | None:
    """The seconds a server asks to wait: until its rate limit ends, else Retry-After; None when it does not say."""
    reset = headers.get("RateLimit-ResetTime")
    if reset:
        import email.utils

        try:
            return max(0.0, email.utils.parsedate_to_datetime(reset).timestamp() - now)
        except ValueError:
            pass
    after = headers.get("Retry-After", "").strip()
    return float(after) if after.isascii() and after.isdigit() and len(after) <= 9 else None


def _reply(response: _Response) -> JobReply:
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
    """A job's payload. Servers may send null for any field; it then counts as left out."""
    try:
        return msgspec.json.decode(body, type=JobPayload)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), JobPayload)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _identity(body: bytes) -> tuple[int, str] | None:
    """Id and token of a payload that is otherwise unreadable."""
    try:
        found = msgspec.json.decode(body)
        return int(found["id"]), str(found["token"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None
