"""Fetches files from web addresses for `include:remote`, with limits for time, size and redirects.

An address is checked in the normalized form in which it is fetched, not as the user wrote it.

Invariant: only addresses that start with a prefix on the operator's allow list are fetched, redirects included."""

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from remuda.pipeline import SourceProblem
from remuda.pipeline.include.allowed_addresses import read_prefix

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

DEADLINE_SECONDS = 10
SILENT_SECONDS = 30
"""How long an address that did not answer is not fetched again. Pipelines that include it fail at once meanwhile."""
MAX_SILENT = 1000
MAX_REDIRECTS = 3
MAX_CACHED_BYTES = 16 * 1024 * 1024
"""Limit for the cached files together; above it all are forgotten."""

_REDIRECTS = (301, 302, 303, 307, 308)
_UNUSUAL = re.compile(r"[\x00-\x20\x7f\\]")


def parse_address(text: str) -> "URL | None":
    """Parse an http or https address; None if it is invalid or contains credentials, spaces or control characters."""
    # Imported here, as the rest of the HTTP library: few cells ever fetch anything.
    from yarl import URL

    if _UNUSUAL.search(text):
        return None
    try:
        url = URL(text)
        port = url.explicit_port
    except ValueError:
        return None
    if url.scheme not in ("http", "https") or not url.host or url.user is not None or url.password is not None:
        return None
    return None if port == 0 else url


class RemoteFiles:
    def __init__(self, allowed: Sequence[str], *, limit_bytes: int) -> None:
        self._allowed = [prefix for text in allowed if (prefix := read_prefix(text))]
        self._limit_bytes = limit_bytes
        self._silent_until: dict[URL, float] = {}
        self._cached: dict[str, tuple[float, bytes]] = {}
        """Contents by address, with the time at which each was fetched."""

    async def fetch(self, text: str, *, cache_seconds: int = 0) -> bytes | SourceProblem:
        """Return the content at a web address, or a SourceProblem that says why there is none. With `cache_seconds`,
        the content may have been fetched that long ago. If a request times out, further calls for the address return
        the same problem for `SILENT_SECONDS`, without a new request."""
        now = asyncio.get_running_loop().time()
        if cache_seconds and (cached := self._cached.get(text)) and now - cached[0] <= cache_seconds:
            return cached[1]
        content = await self._fetch(text)
        if cache_seconds and isinstance(content, bytes):
            if sum(len(each) for _, each in self._cached.values()) + len(content) > MAX_CACHED_BYTES:
                self._cached.clear()
            self._cached[text] = now, content
        return content

    async def _fetch(self, text: str) -> bytes | SourceProblem:
        import aiohttp

        url = parse_address(text)
        if url is None:
            return SourceProblem(
                reason="the address is not a plain http or https address", suggestion="write https://host/path"
            )
        now = asyncio.get_running_loop().time()
        silent = SourceProblem(
            reason=f"{url.host} did not answer within {DEADLINE_SECONDS} s",
            suggestion=f"try again in {SILENT_SECONDS} s",
        )
        if self._silent_until.get(url, now) > now:
            return silent
        try:
            async with (
                asyncio.timeout(DEADLINE_SECONDS),
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            ):
                return await self._follow(session, url)
        except TimeoutError:
            if len(self._silent_until) >= MAX_SILENT:
                self._silent_until.clear()
            self._silent_until[url] = now + DEADLINE_SECONDS + SILENT_SECONDS
            return silent
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            return SourceProblem(reason=f"the file cannot be fetched: {reason}", suggestion="check the address")

    async def _follow(self, session: "aiohttp.ClientSession", url: "URL") -> bytes | SourceProblem:
        from yarl import URL

        for _ in range(1 + MAX_REDIRECTS):
            address = read_prefix(str(url))
            if address is None or not any(prefix.covers(address) for prefix in self._allowed):
                return SourceProblem(
                    reason=f"{url.origin()} is not on the cell's list of addresses to include from",
                    suggestion="ask its operator to put it into REMUDA_REMOTE_INCLUDES, or include by project",
                )
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status in _REDIRECTS:
                    target = parse_address(str(url.join(URL(answer.headers.get("Location", "")))))
                    if target is None:
                        return SourceProblem(reason="the address redirects to an invalid one")
                    url = target
                    continue
                if answer.status != 200:
                    return SourceProblem(
                        reason=f"{url.host} answered {answer.status}",
                        suggestion="check the address",
                        is_missing=answer.status in (404, 410),
                    )
                return await self._read(answer)
        return SourceProblem(
            reason=f"the address redirects more than {MAX_REDIRECTS} times", suggestion="use the final address"
        )

    async def _read(self, answer: "aiohttp.ClientResponse") -> bytes | SourceProblem:
        content = bytearray()
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > self._limit_bytes:
                return SourceProblem(reason=f"the file is larger than {self._limit_bytes} bytes", suggestion="split it")
        return bytes(content)
