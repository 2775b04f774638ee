"""Sends the request of a webhook, with limits for time and size.

Invariant: the name of the server is resolved once, its addresses are checked, and the connection goes to one of the
checked addresses. So no name leads to the cell's own network, unless the setting `hook_local_addresses` allows it.
Redirects are not followed."""

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

from remuda.cell.core.pipelines.webhook_delivery import MAX_ANSWER, Outcome, is_public_address
from remuda.cell.pipelines.remote_files import parse_address

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

DEADLINE_SECONDS = 10.0
_ANSWER_BYTES = 4 * MAX_ANSWER


class LocalAddressError(Exception):
    """The name of a server leads only to addresses of a local network."""


async def send_request(
    address: str, headers: dict[str, str], body: bytes, *, is_verifying: bool, allows_local: bool
) -> Outcome:
    """Send one POST request. The result says what the server answered, or why there is no answer; nothing is raised."""
    import aiohttp

    url = parse_address(address)
    if url is None:
        return Outcome(error="the address is not a plain http or https address without a user name")
    began = time.monotonic()
    resolver: Any = _Resolver(allows_local=allows_local)
    try:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                # A small compressed answer could fill the memory.
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
            ) as session,
        ):
            # aiohttp resolves no address that is written as one.
            if not allows_local and _is_written_address(url.host or "") and not is_public_address(url.host or ""):
                raise LocalAddressError(url.host)
            async with session.post(url, data=body, headers=headers, allow_redirects=False, ssl=is_verifying) as answer:
                content = await answer.content.read(_ANSWER_BYTES)
                seconds = time.monotonic() - began
                return Outcome(status=answer.status, answer=content.decode(errors="replace"), seconds=seconds)
    except LocalAddressError as error:
        return _refuse(error)
    except TimeoutError:
        return Outcome(error=f"no answer within {DEADLINE_SECONDS:g} s", seconds=time.monotonic() - began)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, LocalAddressError):
            return _refuse(cause)
        return Outcome(error=str(error) or type(error).__name__, seconds=time.monotonic() - began)


def _refuse(error: LocalAddressError) -> Outcome:
    return Outcome(
        error=f"{error}: requests to the local network are not allowed (setting hook_local_addresses of the cell)"
    )


def _is_written_address(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        return False
    return True


class _Resolver:
    """Resolves a name to its public addresses. aiohttp connects to what it returns, without resolving again."""

    def __init__(self, *, allows_local: bool) -> None:
        self._allows_local = allows_local

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> "list[ResolveResult]":
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        results: list[Any] = [
            {"hostname": host, "host": place[0], "port": port, "family": kind, "proto": 0,
             "flags": socket.AI_NUMERICHOST}
            for kind, _, _, _, place in rows
            if self._allows_local or is_public_address(str(place[0]))
        ]  # fmt: skip
        if not results:
            raise LocalAddressError(host)
        return results

    async def close(self) -> None:
        return
