"""HTTP sessions of the API clients: aiohttp in general, `loopback_http` for a server on this machine.

Both raise `CannotConnectError` if there is no connection to the server, any other OSError if it broke or timed out,
ValueError if the address is invalid. `lib.connection_errors` explains these errors. Redirects are returned as answers,
because calls carry tokens for one server. aiohttp is imported at the first call that needs it."""

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import urlsplit

from remuda.wire.loopback_http import CannotConnectError, LoopbackClient, is_loopback

if TYPE_CHECKING:
    import aiohttp

_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


class BrokenCallError(ConnectionError):
    """The connection failed before the HTTP answer was complete."""


class Content(Protocol):
    """The body of an HTTP answer, read in pieces of about `size` bytes."""

    def iter_chunked(self, size: int, /) -> AsyncIterator[bytes]: ...


class Answer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer. Names are case-insensitive."""

    @property
    def content(self) -> Content: ...

    async def read(self) -> bytes: ...


class HttpSession:
    """Pool of HTTP connections for any number of calls. `headers` are sent with every call."""

    def __init__(self, headers: Mapping[str, str], *, connect_seconds: float = 30.0) -> None:
        self._headers = dict(headers)
        self.connect_seconds = connect_seconds
        self._loopback = LoopbackClient(connect_seconds)
        self._library: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loopback.close()
        if self._library is not None:
            await self._library.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        read_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Answer]:
        """Send a request; `async with` gives the answer, with a body that is read inside the block. `read_seconds`:
        longest time without any data from the server; the total time is not limited here."""
        headers = {**self._headers, **headers}
        if proxy is None and is_loopback(url):
            return self._loopback.request(method, url, data=data, headers=headers, read_seconds=read_seconds)
        return self._request_by_aiohttp(method, url, data, headers, tls, proxy, read_seconds)

    @asynccontextmanager
    async def _request_by_aiohttp(
        self,
        method: str,
        url: str,
        data: bytes | None,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        proxy: str | None,
        read_seconds: float | None,
    ) -> AsyncIterator[Answer]:
        import aiohttp
        from yarl import URL

        if self._library is None:
            # No limit of its own: held polls and jobs bound the connections, and a poll must never keep a job waiting.
            self._library = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=90))
        try:
            async with self._library.request(
                method,
                # Encoded already; the library would decode a %2F.
                URL(url, encoded=True),
                data=data,
                headers=headers,
                ssl=tls or True,
                proxy=proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.connect_seconds, sock_read=read_seconds),
            ) as answer:
                yield answer
        except aiohttp.ClientConnectorError as error:
            raise CannotConnectError(error.errno, str(error)) from error
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            raise CannotConnectError(None, str(error)) from error
        except aiohttp.InvalidURL:
            raise
        except aiohttp.ClientError as error:
            raise BrokenCallError(str(error) or type(error).__name__) from error


def environment_proxy(url: str) -> str | None:
    """Proxy for `url` by HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment; None: no proxy. For a
    server on this machine always None."""
    if not any(name.lower() in _PROXIES for name in os.environ):
        return None
    import urllib.request  # not at the top: most have no proxy, and all would pay for it

    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    proxies = urllib.request.getproxies_environment()
    if urllib.request.proxy_bypass(parts.netloc, proxies):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")
