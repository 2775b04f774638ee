"""HTTP calls to one server: request ids, retries, redirects, timeouts. `runner_client` has a method for each API call.

A call is retried after 408, 429 and most of 5xx (`is_retried`), up to five attempts. Statuses are returned as values;
only network errors raise, at once. Calls carry tokens, so a redirect to another server is returned as the answer.
Repeating is safe: the server's handlers are idempotent, and all attempts of one call have the same `X-Request-Id`."""

import asyncio
import json
import platform
import random
import ssl
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.lib.connection_errors import Fault, explain, is_https_notice, needs_tls
from remuda.wire.http_session import HttpSession, environment_proxy
from remuda.wire.loopback_http import CannotConnectError

ATTEMPTS = 5
MOST_REDIRECTS = 5
REDIRECTS = (307, 308)
"""Redirects that keep method and body. Other redirects would change the call, so they are not followed."""
CALL_TIMEOUT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 300.0
"""Longest wait between two attempts of a call. If the server requests more, the call ends and the caller repeats it
later."""
_BACKOFF = Backoff(first_seconds=0.1, ceiling_seconds=60.0)
_PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
_ADVICE = {
    Fault.UNTRUSTED: "name the certificate of its authority in tls-ca-file of the runner, or put it into "
    "certs/HOST.crt beside config.toml",
    Fault.CLIENT_CERTIFICATE: "name another certificate in tls-cert-file, and its key in tls-key-file, of the runner",
    Fault.REFUSED: "check the url of the runner, and whether the server runs",
}
_USER_AGENT = f"remuda-manager {__version__} ({_PYTHON}; {platform.system().lower()}/{platform.machine()})"


class RunnerApiTemporaryError(Exception):
    """The server gave no usable answer: it was not reached, the connection broke, or it did not answer in time. A later
    attempt may succeed. `ShellClient` also raises it for temporary error statuses."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    endpoint: str
    method: str
    status: int
    seconds: float


class Response(msgspec.Struct, frozen=True, kw_only=True):
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
            message = json.loads(self.body).get("message", "") if self.is_json else ""
        except (ValueError, AttributeError):
            return ""
        return message if isinstance(message, str) else json.dumps(message)


def api_root(url: str) -> str:
    """Base address of a server's API: `url` without a trailing `/` and `/ci`."""
    return f"{url.rstrip('/').removesuffix('/ci').rstrip('/')}"


def tls_context(*, ca_file: str = "", cert_file: str = "", key_file: str = "") -> ssl.SSLContext:
    """TLS settings of a client: TLS 1.2 or newer, with these PEM files of a CA and a client certificate, if any."""
    context = ssl.create_default_context(cafile=ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file:
        context.load_cert_chain(cert_file, key_file)
    return context


def new_session() -> HttpSession:
    """A pool of connections, which any number of clients can share."""
    return HttpSession({"User-Agent": _USER_AGENT})


class Server:
    """Sends calls to one server, and repeats those that it answers with a temporary error status."""

    def __init__(
        self,
        *,
        url: str,
        session: HttpSession,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        measure: Callable[[Measured], None] = lambda _: None,
        on_retry: Callable[[str, str], None] = lambda _path, _method: None,
    ) -> None:
        """`measure` is called after every request (metrics), `on_retry` (endpoint, method) before every repetition."""
        self.root = api_root(url)
        self._session = session
        self.clock = clock
        self._tls = tls if urlsplit(url).scheme == "https" else None
        self._proxy = environment_proxy(url)
        self._measure = measure
        self._on_retry = on_retry

    async def call(
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
        """Send a request up to `attempts` times and return the last answer. `endpoint`: name of the call in metrics.
        Raises RunnerApiTemporaryError, without further attempts, if a request gets no answer."""
        headers = {"X-Request-Id": request_id or new_request_id(), "Content-Type": "application/json"} | headers
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)

        async def attempt() -> Response:
            began = self.clock.monotonic()
            status = -1
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._exchange(method, path, headers, data)
                status = answer.status
                if is_https_notice(answer.status, answer.body):
                    raise RunnerApiTemporaryError(str(needs_tls(self.root)))
                return answer
            except OSError as error:
                seconds = self._session.connect_seconds if isinstance(error, CannotConnectError) else timeout
                reason = explain(error, self.root, proxy=self._proxy, seconds=seconds, advice=_ADVICE)
                raise RunnerApiTemporaryError(str(reason)) from error
            except ValueError as error:
                raise RunnerApiTemporaryError(f"{self.root}: {error}") from error
            finally:
                seconds = self.clock.monotonic() - began
                self._measure(Measured(endpoint=endpoint, method=method.lower(), status=status, seconds=seconds))

        return await self._retry(attempt, attempts, retried=lambda: self._on_retry(endpoint, method.lower()))

    async def _exchange(self, method: str, path: str, headers: dict[str, str], data: bytes) -> Response:
        """Send one request, follow redirects on the same server, and return the answer."""
        url = self.root + path
        for _ in range(MOST_REDIRECTS + 1):
            tls = self._tls if url[:6].lower() == "https:" else None
            async with self._session.request(
                method, url, data=data, headers=headers, tls=tls, proxy=self._proxy
            ) as answer:
                response = Response(status=answer.status, headers=answer.headers, body=await answer.read())
            target = resolve_redirect(url, answer.headers.get("Location", "")) if answer.status in REDIRECTS else None
            if target is None:
                break
            url = target
        return response

    async def _retry(
        self, attempt: Callable[[], Awaitable[Response]], attempts: int, *, retried: Callable[[], None]
    ) -> Response:
        for failures in range(1, attempts):
            response = await attempt()
            # The job has ended, so a repetition would get the same answer.
            if not is_retried(response.status) or response.headers.get("Job-Status") in ("canceled", "failed"):
                return response
            wait = parse_retry_after(response.headers, self.clock.wall())
            if wait is None:
                wait = _BACKOFF.delay(failures, jitter=random.random())
            if wait > LONGEST_WAIT_SECONDS:
                return response
            await self.clock.sleep(wait)
            retried()
        return await attempt()


def new_request_id() -> str:
    return uuid.uuid4().hex


def is_retried(status: int) -> bool:
    return status in (408, 429, 500, 502, 503, 504) or status >= 512


def resolve_redirect(url: str, location: str) -> str | None:
    """The address that a redirect leads to. None if it is on another host or port, or HTTP instead of HTTPS; from HTTP
    to HTTPS is allowed on the standard ports."""
    try:
        old, new = urlsplit(url), urlsplit(urljoin(url, location))
        same = (new.scheme, new.hostname, new.port) == (old.scheme, old.hostname, old.port)
        upgraded = (old.scheme, new.scheme) == ("http", "https") and new.hostname == old.hostname
        standard = old.port in (None, 80) and new.port in (None, 443)
    except ValueError:
        return None
    return new.geturl() if location and (same or (upgraded and standard)) else None


def parse_retry_after(headers: Any, now: float) -> float | None:
    """Seconds that the server asks to wait: until its rate limit ends, else Retry-After. None if it does not ask."""
    reset = headers.get("RateLimit-ResetTime")
    if reset:
        import email.utils

        try:
            return max(0.0, email.utils.parsedate_to_datetime(reset).timestamp() - now)
        except ValueError:
            pass
    after = headers.get("Retry-After", "").strip()
    return float(after) if after.isascii() and after.isdigit() and len(after) <= 9 else None
