"""Tokens stay with the server that they are for, whatever it redirects to."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from remuda.lib.clock import SystemClock
from remuda.wire.runner_api import RunnerInfo
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import Server, new_session
from remuda.wire.user_client import RefusedError, UserClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, host: str) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["nearby", "by the library"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_call_goes_to_another_server(host: str, status: int) -> None:
    strangers: list[str] = []

    async def strange(request: web.Request) -> web.Response:
        strangers.append(f"{request.method} {request.path} {dict(request.headers)} {await request.text()}")
        return web.Response(status=204)

    async with served(strange, "127.0.0.3") as elsewhere:

        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": elsewhere + request.path_qs})

        async with served(redirect, host) as url, new_session() as session:
            client = RunnerClient(
                Server(url=url, session=session, clock=SystemClock()),
                token="glrt-secret",
                system_id="s_1",
                info=RunnerInfo(),
            )
            offer = await client.request_job(request_id="0" * 32)
            assert offer.status == status
            if status in (307, 308):
                assert "it redirects to http://127.0.0.3, where tokens are not sent" in offer.message
            assert (await client.patch_trace(7, "glcbt-secret", 0, b"log")).status == status
            assert (await client.update_job(7, "glcbt-secret", state="running")).status == status
            assert (await client.verify()).status == status
            async with UserClient(url, "glpat-secret") as user:
                with pytest.raises(RefusedError, match=r"redirects to http://127.0.0.3, where your token is not sent"):
                    await user.call("GET", "/api/v4/user")
    assert strangers == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["nearby", "by the library"])
async def test_the_same_server_gets_the_whole_call_again(host: str) -> None:
    seen: list[tuple[str, str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, await request.text()))
        if request.path.startswith("/api"):
            return web.Response(status=307, headers={"Location": f"/moved{request.path_qs}"})
        return web.Response(status=202)

    async with served(handle, host) as url, new_session() as session:
        client = RunnerClient(
            Server(url=url, session=session, clock=SystemClock()), token="glrt-1", system_id="s_1", info=RunnerInfo()
        )
        assert (await client.patch_trace(7, "glcbt-1", 0, b"log")).status == 202
    assert seen == [("PATCH", "/api/v4/jobs/7/trace", "log"), ("PATCH", "/moved/api/v4/jobs/7/trace", "log")]


async def test_a_server_that_redirects_for_ever_is_left() -> None:
    calls = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=307, headers={"Location": request.path_qs})

    async with served(handle, "127.0.0.1") as url, new_session() as session:
        client = RunnerClient(
            Server(url=url, session=session, clock=SystemClock()), token="glrt-1", system_id="s_1", info=RunnerInfo()
        )
        assert (await client.patch_trace(7, "glcbt-1", 0, b"log")).status == 307
    assert calls == 6
