"""Tokens are sent only to the server that they belong to, also if it redirects."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from remuda.lib.clock import SystemClock
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_api import RegisterRunner, RunnerInfo, UpdateJob
from remuda.wire.runner_client import RunnerClient
from remuda.wire.runner_server import Server, new_session
from remuda.wire.user_client import RefusedError, UserClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler, host: str) -> AsyncIterator[str]:
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


def create_client(url: str, session: HttpSession, token: str) -> RunnerClient:
    server = Server(url=url, session=session, clock=SystemClock())
    return RunnerClient(server, token=token, system_id="s_1", info=RunnerInfo())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["nearby", "by the library"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_call_is_redirected_to_another_server(host: str, status: int) -> None:
    leaked_calls: list[str] = []

    async def record_call(request: web.Request) -> web.Response:
        leaked_calls.append(f"{request.method} {request.path} {dict(request.headers)} {await request.text()}")
        return web.Response(status=204)

    async with serve(record_call, "127.0.0.3") as elsewhere:

        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": elsewhere + request.path_qs})

        async with serve(redirect, host) as url, new_session() as session:
            client = create_client(url, session, "glrt-secret")
            offer = await client.request_job(request_id="0" * 32)
            assert offer.status == status
            if status in (307, 308):
                assert "it redirects to http://127.0.0.3, where tokens are not sent" in offer.message
            assert (await client.patch_trace(7, "glcbt-secret", 0, b"log")).status == status
            assert (await client.update_job(7, "glcbt-secret", UpdateJob(state="running"))).status == status
            assert (await client.verify()).status == status
            async with UserClient(url, "glpat-secret") as user:
                with pytest.raises(RefusedError, match=r"redirects to http://127.0.0.3, where your token is not sent"):
                    await user.call("GET", "/api/v4/user")
    assert leaked_calls == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"], ids=["nearby", "by the library"])
async def test_a_redirect_on_the_same_server_repeats_the_whole_call(host: str) -> None:
    requests: list[tuple[str, str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        requests.append((request.method, request.path_qs, await request.text()))
        if request.path.startswith("/api"):
            return web.Response(status=307, headers={"Location": f"/moved{request.path_qs}"})
        return web.Response(status=202)

    async with serve(handle, host) as url, new_session() as session:
        client = create_client(url, session, "glrt-1")
        assert (await client.patch_trace(7, "glcbt-1", 0, b"log", is_traced=True)).status == 202
    path = "/api/v4/jobs/7/trace?debug_trace=true"
    assert requests == [("PATCH", path, "log"), ("PATCH", f"/moved{path}", "log")]


async def test_the_number_of_redirects_is_limited() -> None:
    calls = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=307, headers={"Location": request.path_qs})

    async with serve(handle, "127.0.0.1") as url, new_session() as session:
        client = create_client(url, session, "glrt-1")
        assert (await client.patch_trace(7, "glcbt-1", 0, b"log")).status == 307
    assert calls == 6


async def test_every_call_with_a_runner_token_has_it_in_the_header() -> None:
    """A router in front of the cells reads the cell from this header, without reading bodies."""
    headers: dict[str, str | None] = {}

    async def record_call(request: web.Request) -> web.Response:
        headers[f"{request.method} {request.path}"] = request.headers.get("RUNNER-TOKEN")
        return web.Response(status=403)

    async with serve(record_call, "127.0.0.1") as url, new_session() as session:
        client = create_client(url, session, "glrt-secret")
        await client.verify()
        await client.request_job(request_id="r")
        await client.reset_token()
        await client.unregister()
        await client.register(RegisterRunner())
    assert len(headers) == 5
    assert set(headers.values()) == {"glrt-secret"}
