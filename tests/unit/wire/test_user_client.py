"""The user client, tested with a small server on a real socket."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from remuda.wire.user_client import NAMESPACE, PAGE_SIZE, RefusedError, UserApiError, UserClient

Answer = Callable[[web.Request], Awaitable[web.Response]]
Serve = Callable[[Answer], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners = []

    async def start(answer: Answer) -> str:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        return f"http://{host}:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_the_token_is_sent_and_json_is_returned(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"token": request.headers["PRIVATE-TOKEN"], "path": request.path_qs})

    async with UserClient(await serve(answer) + "/", "glpat-x") as client:
        assert await client.call("GET", "/api/v4/x", a=1) == {"token": "glpat-x", "path": "/api/v4/x?a=1"}


async def test_lists_are_read_page_after_page_up_to_a_limit(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        first = (int(request.query["page"]) - 1) * PAGE_SIZE
        return web.json_response(list(range(first, min(first + PAGE_SIZE, 250))))

    async with UserClient(await serve(answer), "t") as client:
        assert await client.pages("/x") == list(range(250))
        assert await client.pages("/x", limit=120) == list(range(120))


async def test_a_project_is_created_only_if_it_does_not_exist(serve: Serve) -> None:
    created: list[str] = []
    project = {"id": 3, "path_with_namespace": f"{NAMESPACE}/shop", "http_url_to_repo": "http://x/shop.git"}

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            created.append((await request.json())["path"])
            return web.json_response(project, status=201)
        assert request.raw_path == f"/api/v4/projects/{NAMESPACE}%2Fshop"
        return web.json_response(project) if created else web.json_response({"message": "404"}, status=404)

    async with UserClient(await serve(answer), "t") as client:
        assert (await client.ensure_project("shop", default_branch="main")).id == 3
        assert (await client.ensure_project("shop", default_branch="main")).id == 3
    assert created == ["root/shop"]


@pytest.mark.parametrize(
    ("status", "body", "error", "message"),
    [
        (401, '{"message": "401 Unauthorized"}', RefusedError, "REMUDA_TOKEN"),
        (404, '{"message": "404 Job Not Found"}', RefusedError, "there is no job"),
        (400, '{"error": "scope is invalid"}', RefusedError, "scope is invalid"),
        (400, '{"message": {"path": ["is taken"]}}', RefusedError, "path is taken"),
        (403, "no json", RefusedError, "remuda login"),
        (500, "{}", UserApiError, "its log says why"),
        (200, "<html>", UserApiError, "not as a cell does"),
    ],
)
async def test_bad_answer_explained(serve: Serve, status: int, body: str, error: type[Exception], message: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, status=status)

    async with UserClient(await serve(answer), "t") as client:
        with pytest.raises(error, match=message):
            await client.call("GET", "/x")


async def test_an_answer_in_another_form_is_explained(serve: Serve) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response([{"id": "seven"}])

    async with UserClient(await serve(answer), "t") as client:
        with pytest.raises(UserApiError, match="not understood"):
            await client.pipelines(1)


async def test_a_refused_connection_is_explained_with_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server_socket:
        port = server_socket.getsockname()[1]
    async with UserClient(f"http://127.0.0.1:{port}", "t") as client:
        with pytest.raises(UserApiError, match=r"refused the connection.*remuda up"):
            await client.call("GET", "/x")


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://host:port"])
async def test_an_invalid_address_is_explained(url: str) -> None:
    async with UserClient(url, "t") as client:
        with pytest.raises(UserApiError):
            await client.call("GET", "/x")


async def test_a_broken_answer_is_explained(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with UserClient(await serve(answer), "t") as client:
        with pytest.raises(UserApiError, match="broke off"):
            await client.call("GET", "/x")


async def test_a_part_of_the_log_has_the_state_of_the_job(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        data = b"0123456789"[int(request.query["offset"]) :]
        return web.Response(body=data, headers={"X-Remuda-Job-State": "running"})

    async with UserClient(await serve(answer), "t") as client:
        part = await client.trace(1, 7)
    assert (part.data, part.state) == (b"789", "running")


async def test_heartbeats_of_the_event_stream_have_an_id(serve: Serve) -> None:
    async def answer(_: web.Request) -> web.Response:
        text = 'retry: 1000\n: alive\nid: a-7\n\nid: a-8\nevent: job\ndata: {"id": 1}\n\n: alive\nid: a-9\n\n'
        return web.Response(text=text, content_type="text/event-stream")

    async with UserClient(await serve(answer), "t") as client:
        seen = [(event.id, event.kind) async for event in client.events()]
    assert seen == [("a-7", "heartbeat"), ("a-8", "job"), ("a-9", "heartbeat")]
