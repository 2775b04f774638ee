"""HTTP client for artifacts, caches and secrets. Bodies are streamed both ways, and transient failures are retried: 4xx
(except 408 and 429) is final, an unreachable server is waited for, other errors get a few attempts (`retries`). The job
token is sent only to the server of the first URL, not to another one after a redirect. A server may refuse a long
upload before it has read all of it; its answer is read anyway, so that the user learns the reason."""

import base64
import http.client
import json
import os
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.retries import TransientError, retry

UNREACHABLE = (0, 429, 502, 503, 504)
"""Statuses of a server that is temporarily unavailable; 0: no answer."""
CONNECT_SECONDS, ANSWER_SECONDS = 30, 600
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
AGENT = "remuda-agent"
CHUNK_BYTES = 256 * 1024
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
"""The error code in an answer of an object storage."""
_TUNNEL = re.compile(r"Tunnel connection failed: ((\d{3})\b.*)")
"""The message of `http.client` for an error status of a proxy, which no attribute has."""

T = TypeVar("T")


class HttpError(Exception):
    """Raised for an answer with an error status, or if there is no answer (status 0)."""

    def __init__(self, status: int, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after


def find_transient(error: HttpError) -> TransientError | None:
    """Convert an HTTP error to a TransientError; None if the error is permanent (4xx except 408 and 429)."""
    if error.status in UNREACHABLE:
        return TransientError(str(error), unreachable=True, retry_after=error.retry_after)
    if 400 <= error.status < 500 and error.status != 408:
        return None
    return TransientError(str(error), unreachable=False)


def with_retries(what: str, call: Callable[[int], T], *, patience: float | None = None) -> T:
    """Call `call`, with the number of failures so far, until it succeeds. Raises StepError for a permanent error,
    PlatformError for lasting transient ones. `what`: for logs. `patience`: seconds for an unreachable server."""

    def attempt(failures: int) -> T:
        try:
            return call(failures)
        except HttpError as error:
            transient = find_transient(error)
            if transient is None:
                raise StepError(f"{what} failed: {error}") from None
            raise transient from None

    return retry(what, attempt, patience=patience)


def request(
    method: str,
    url: str,
    *,
    token: str = "",
    body: Callable[[], Iterable[bytes]] | None = None,
    headers: dict[str, str] | None = None,
    redirects: int = MOST_REDIRECTS,
    answer_seconds: float = ANSWER_SECONDS,
) -> http.client.HTTPResponse:
    """Send a request, follow redirects, and return a 2xx answer with its body unread. Raises HttpError for another
    status or no answer, StepError for an invalid URL, PlatformError for more than `redirects` redirects or an untrusted
    certificate. `token`: the job token. `body`: returns the parts of the body; called again after a redirect. They are
    sent in chunks unless `headers` has Content-Length. `answer_seconds`: timeout for the answer."""
    origin, server = "", ""
    for _ in range(redirects + 1):
        if not is_address(url):
            raise StepError(
                f"{url.partition('?')[0].rpartition('@')[2][:200]!r} is not an http or https URL with a host name"
            )
        target = urlsplit(url)
        server = server or str(target.hostname)
        origin = origin or f"{target.scheme}://{target.netloc}"
        same = f"{target.scheme}://{target.netloc}" == origin
        fields = {"User-Agent": AGENT, "Connection": "close"} | (headers or {})
        if token and same:
            fields["JOB-TOKEN"] = token
        response = send_once(method, url, fields, body() if body else None, answer_seconds)
        if 200 <= response.status < 300:
            return response
        location = response.getheader("Location")
        if response.status not in REDIRECTS or not location:
            raise convert_answer(response)
        response.close()
        url = urljoin(url, location)
    raise PlatformError(f"the server at {server} redirects more than {redirects} times")


def is_address(url: str) -> bool:
    """True if this is an http or https URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def read_some(response: http.client.HTTPResponse, most: int) -> bytes:
    """Read at most `most` bytes of the body. Raises HttpError if the connection breaks."""
    try:
        return response.read(most)
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(0, f"the connection to the server broke: {error}") from None


def store(response: http.client.HTTPResponse, target: Path) -> int:
    """Write the body to a file and return its size in bytes. Raises HttpError if the body is incomplete."""
    expected = response.getheader("Content-Length")
    size = 0
    try:
        with target.open("wb") as file:
            while chunk := response.read(CHUNK_BYTES):
                size += file.write(chunk)
    except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
        raise HttpError(0, f"the connection to the server broke: {error}") from None
    if expected is not None and size < int(expected):
        raise HttpError(0, f"the connection to the server ended after {size} of {expected} bytes")
    return size


def send_once(
    method: str, url: str, headers: dict[str, str], body: Iterable[bytes] | None, answer_seconds: float
) -> http.client.HTTPResponse:
    """Send one request and return the answer, whatever its status, with its body unread. Raises HttpError if there is
    no answer, PlatformError for an untrusted certificate."""
    connection, target, for_proxy = _connect(url)
    in_chunks = body is not None and "Content-Length" not in headers
    try:
        try:
            connection.request(method, target, body=body, headers=headers | for_proxy, encode_chunked=in_chunks)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # The server may have refused without reading to the end; its answer is read below.
        if connection.sock is not None:
            connection.sock.settimeout(answer_seconds)
        response = connection.getresponse()
        if connection.sock is not None:
            connection.sock.close()  # takes effect when the response, which still reads from it, is closed
        return response
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        failure = _convert_error(error, url, connection.host)
    # Not raised above: `error` refers to a failed tunnel's socket, which is closed when nothing refers to it any more.
    raise failure


def _convert_error(error: OSError | http.client.HTTPException, url: str, host: str) -> HttpError | PlatformError:
    """Convert an error of a connection to an HttpError, or to a PlatformError if the server's certificate is not
    trusted. `url`: the requested URL. `host`: the host of the connection, which is the proxy if one is used."""
    server = f"{urlsplit(url).netloc.rpartition('@')[2]}: {str(error) or type(error).__name__}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return PlatformError(f"the server's certificate is not trusted: {server}")
    if refusal := _TUNNEL.match(str(error)):
        status = int(refusal[2])
        # Callers take 404 or 413 as an answer of the server.
        is_final = 400 <= status < 500 and status not in (408, 429)
        return HttpError(407 if is_final else status, f"the proxy {host} answered {refusal[1]}")
    return HttpError(0, f"the server cannot be reached: {server}")


def _connect(url: str) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """Return a connection for `url` (by the environment's proxy, if any), the request target, and proxy headers."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host, port = parts.hostname or "", parts.port
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc):
        proxy_host, proxy_port, login = _parse_proxy(proxy)
        if parts.scheme == "http":
            return http.client.HTTPConnection(proxy_host, proxy_port, timeout=CONNECT_SECONDS), url, login
        tunnel = http.client.HTTPSConnection(proxy_host, proxy_port, timeout=CONNECT_SECONDS, context=_tls())
        tunnel.set_tunnel(host, port or 443, login)
        return tunnel, target, {}
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS), target, {}
    return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=_tls()), target, {}


def _parse_proxy(text: str) -> tuple[str, int, dict[str, str]]:
    """Return host and port of a proxy, and a header with user name and password if its URL has them. Raises StepError
    if the URL is invalid."""
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        raise StepError(
            "the proxy in the environment is not a valid URL; write special characters of user and password as %XX"
        ) from None
    # `http.client` connects to a proxy without TLS, so it must not send a password that was meant to be sent with TLS.
    if not url.username or url.scheme == "https":
        return url.hostname or "", port, {}
    login = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
    return url.hostname or "", port, {"Proxy-Authorization": f"Basic {base64.b64encode(login).decode()}"}


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if own_ca := os.environ.get("CI_SERVER_TLS_CA_FILE"):
        context.load_verify_locations(own_ca)
    return context


def convert_answer(response: http.client.HTTPResponse) -> HttpError:
    """Return the error for an answer with an error status. Reads and closes the answer."""
    with response:
        text = read_some(response, 4096).decode(errors="replace")
    try:
        body = json.loads(text)
        message = body.get("message", "") or "; ".join(body.get("errors", ()))
    except (ValueError, AttributeError, TypeError):
        code = _CODE.search(text)
        message = code[1] if code else ""
    retry_after = response.getheader("Retry-After", "")
    return HttpError(
        response.status,
        f"the server answered {response.status} {response.reason}" + (f": {message}" if message else ""),
        float(retry_after) if retry_after.isdigit() else None,
    )
