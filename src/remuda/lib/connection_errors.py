"""Explains a failed connection for people: which host and port, what failed, and what to do next.

Clients of servers use `explain`, clients of agents and plugins on this machine `explain_local`, so that a failure has
the same words everywhere. Errors of sockets, of `ssl` and of aiohttp are recognised, also behind `raise ... from`.
aiohttp is not imported: its errors are known by their attributes."""

import errno
import http
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit


class Fault(Enum):
    """What failed in a connection. The value is the advice for it, unless the caller of `explain` has a better one."""

    UNKNOWN_NAME = "check the spelling of the address, and the name servers of this machine"
    NO_NAME_SERVER = "check the network and the name servers of this machine, then try again"
    REFUSED = "check host and port, and whether the server runs"
    UNREACHABLE = "check the network of this machine: routes, VPN, firewall"
    TIMEOUT = "the server may be down or overloaded, or a firewall drops the connection; check both, then try again"
    UNTRUSTED = "let this machine trust the authority that signed it; SSL_CERT_FILE=FILE names its certificate"
    EXPIRED = "renew it on the server; if it is still valid, correct the clock of this machine"
    NOT_YET_VALID = "correct the clock of this machine, or the certificate"
    WRONG_NAME = "use the host name that the certificate was made for, or add this name to the certificate"
    NO_TLS = "write http:// instead of https://, or give the port that speaks TLS"
    NEEDS_TLS = "write https:// instead of http://"
    CLIENT_CERTIFICATE = "give a client certificate that the server accepts"
    TLS = "compare the TLS settings of client and server"
    PROXY = "check the proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; NO_PROXY=HOST goes without it"
    BROKEN = "if it happens again, the log of the server says why"
    OTHER = "check the address, then try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    fault: Fault
    cause: str
    """What failed, with host and port."""
    advice: str

    def __str__(self) -> str:
        return f"{self.cause}; {self.advice}"


_NAMES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_CERTIFICATE = {
    9: (Fault.NOT_YET_VALID, "is not valid yet"),
    10: (Fault.EXPIRED, "has expired"),
    62: (Fault.WRONG_NAME, "is for another host name"),
    64: (Fault.WRONG_NAME, "is for another address"),
}
"""By OpenSSL's X509_V_ERR_ number."""
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"}
_NO_HTTP = {"BadStatusLine", "BadHttpMessage", "ClientResponseError"}
"""Errors of aiohttp about answers that are no HTTP."""
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_CONNECT_CALL = re.compile(r"Connect call failed \('([^']+)', (\d+)")
_TLS_ALERT = re.compile(r"\\+x15\\+x03")
_HTTPS_NOTICE = re.compile(
    rb"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server|plain HTTP to an SSL-enabled", re.I
)


def explain(
    error: BaseException,
    url: str,
    *,
    proxy: str | None = None,
    seconds: float | None = None,
    advice: Mapping[Fault, str] | None = None,
) -> Explanation:
    """Explain why a call to `url` failed. `proxy`: the one that was used. `seconds`: the time limit, for timeouts.
    `advice` replaces the usual advice, by what failed."""
    errors = list(_chain(error))
    place = format_place(url)
    fault, cause = _of_proxy(errors, place, proxy) or _of_server(errors, url, place, seconds)
    return Explanation(fault=fault, cause=cause, advice=(advice or {}).get(fault, fault.value))


def format_place(url: str) -> str:
    """Return HOST:PORT of an address, without user name and password."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return url.rpartition("@")[2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def explain_local(error: Exception) -> str:
    """Explain why an agent or a plugin on this machine cannot be called: the end of a sentence about it."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        place = _CONNECT_CALL.search(str(error))
        where = f"{place[1]}:{place[2]}" if place else "its socket"
        return f"nothing listens at {where}; it has ended, or did not start"
    if isinstance(error, PermissionError):
        return "permission denied at its socket; run this as the user that it runs as"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "it closed the connection; its log says why"
    if isinstance(error, TimeoutError):
        return "it did not answer in time; its log says what it does"
    return str(error) or type(error).__name__


def is_https_notice(status: int, body: bytes) -> bool:
    """True if a server says in plain HTTP that its port expects TLS, as nginx, Apache and programs in Go do."""
    return status == http.HTTPStatus.BAD_REQUEST and _HTTPS_NOTICE.search(body[:4096]) is not None


def needs_tls(url: str) -> Explanation:
    return Explanation(
        fault=Fault.NEEDS_TLS, cause=f"{format_place(url)} speaks TLS, not plain HTTP", advice=Fault.NEEDS_TLS.value
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes. Errors of aiohttp come after those that they contain as an attribute, because they
    may have the class of these, but not their fields."""
    while error is not None:
        for name in ("certificate_error", "os_error"):
            if isinstance(inner := getattr(error, name, None), BaseException) and inner is not error:
                yield inner
        yield error
        error = error.__cause__


def _of_proxy(errors: list[BaseException], place: str, proxy: str | None) -> tuple[Fault, str] | None:
    if proxy is None:
        return None
    name = format_place(proxy)
    for error in errors:
        kind = type(error).__name__
        if kind == "ClientHttpProxyError":
            status = getattr(error, "status", "")
            answer = f"{status} {getattr(error, 'message', '')}".strip()
            return Fault.PROXY, f"the proxy {name} does not connect to {place}: it answered {answer}"
        if kind == "ClientProxyConnectionError":
            _, cause = _of_server([other for other in errors if other is not error], proxy, name, None)
            return Fault.PROXY, f"the proxy for {place} cannot be used: {cause}"
    return None


def _of_server(errors: list[BaseException], url: str, place: str, seconds: float | None) -> tuple[Fault, str]:
    for error in errors:
        if found := _recognise(error, url, place, seconds):
            return found
    for error in errors:
        if (number := _ERRNO.search(str(error))) and (found := _of_number(int(number[1]), place)):
            return found
    # The innermost one: those above repeat it with words of their own.
    text = str(errors[-1]) or type(errors[-1]).__name__
    return Fault.OTHER, f"the call to {place} failed: {text}"


def _recognise(error: BaseException, url: str, place: str, seconds: float | None) -> tuple[Fault, str] | None:
    host = urlsplit(url if "//" in url else f"//{url}").hostname or url
    if isinstance(error, ssl.SSLCertVerificationError) and hasattr(error, "verify_code"):
        fault, text = _CERTIFICATE.get(error.verify_code, (Fault.UNTRUSTED, "is not trusted"))
        detail = f" ({error.verify_message.rstrip('.')})" if error.verify_message else ""
        return fault, f"the certificate of {place} {text}{detail}"
    if isinstance(error, ssl.SSLError):
        return _of_tls(error, place)
    if isinstance(error, socket.gaierror):
        if error.errno in _NAMES:
            return Fault.UNKNOWN_NAME, f"the name {host} is not known ({place})"
        return Fault.NO_NAME_SERVER, f"no name server gave an address for {place} ({error.strerror})"
    if isinstance(error, TimeoutError):
        limit = f" within {seconds:g} s" if seconds is not None else " in time"
        return Fault.TIMEOUT, f"{place} did not answer{limit}"
    text = str(error)
    if type(error).__name__ in _NO_HTTP or text.startswith("the answer is"):
        if _TLS_ALERT.search(text) or text == "the answer is TLS":
            return Fault.NEEDS_TLS, f"{place} speaks TLS, not plain HTTP"
        return Fault.OTHER, f"{place} does not answer in HTTP"
    if isinstance(error, OSError) and error.errno and (found := _of_number(error.errno, place)):
        return found
    if isinstance(error, ConnectionResetError | BrokenPipeError) or type(error).__name__ == "ServerDisconnectedError":
        is_tls = url.lower().startswith("https:")
        hint = " (if it requires a client certificate, give one)" if is_tls else " (if it speaks TLS, write https://)"
        return Fault.BROKEN, f"{place} closed the connection before its answer was complete{hint}"
    return None


def _of_number(number: int, place: str) -> tuple[Fault, str] | None:
    if number == errno.ECONNREFUSED:
        return Fault.REFUSED, f"{place} refused the connection: no server listens there"
    if number in _UNREACHABLE:
        return Fault.UNREACHABLE, f"there is no way to {place} in the network"
    if number == errno.ETIMEDOUT:
        return Fault.TIMEOUT, f"{place} did not answer in time"
    return None


def _of_tls(error: ssl.SSLError, place: str) -> tuple[Fault, str] | None:
    reason = (getattr(error, "reason", "") or "").upper().replace(" ", "_")
    if reason in _NO_TLS:
        return Fault.NO_TLS, f"{place} does not speak TLS"
    if "CERTIFICATE_REQUIRED" in reason:
        return Fault.CLIENT_CERTIFICATE, f"{place} requires a client certificate"
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return Fault.CLIENT_CERTIFICATE, f"{place} does not accept the client certificate"
    if not reason:
        return None
    return Fault.TLS, f"TLS with {place} failed ({reason.lower().replace('_', ' ')})"
