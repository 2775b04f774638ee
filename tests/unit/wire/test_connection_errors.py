"""The words about a failed connection: each case with a real server, seen by the clients of users and of runners."""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.servers.tls_server import Authority, server_context

from remuda.lib.clock import SystemClock
from remuda.wire import user_client
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_server import RunnerApiTemporaryError, Server, tls_context
from remuda.wire.user_client import UserApiError, UserClient

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"


async def answer_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    writer.close()


async def answer_bad_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a server of plain HTTP answers to a TLS hello."""
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


async def send_tls_alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What OpenSSL answers to plain HTTP: the alert `unexpected message`."""
    await reader.read(100)
    writer.write(b"\x15\x03\x01\x00\x02\x02\x0a")
    writer.close()


async def answer_as_nginx(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    body = b"<html><center>The plain HTTP request was sent to HTTPS port</center></html>"
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body)
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.close()


async def answer_407(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


class Place:
    """Servers of one test, and what the clients say when they call them."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.authority = Authority(folder)
        self._stack = stack

    async def serve(self, handler: Handler = answer_ok, *, tls: ssl.SSLContext | None = None) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await handler(reader, writer)

        server = await asyncio.start_server(handle, "0.0.0.0", 0, ssl=tls)
        self._stack.callback(server.close)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def take_unused_port(self) -> int:
        """A port where nothing listens: it is bound, so that nobody else can listen there meanwhile."""
        bound = self._stack.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port

    def take_full_port(self) -> int:
        """A port whose queue of connections is full, so that the kernel drops further ones."""
        server = self._stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):
            client = self._stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    async with AsyncExitStack() as stack:
        yield Place(tmp_path, stack)


async def ask_as_user(url: str) -> str:
    with pytest.raises(UserApiError) as caught:
        async with UserClient(url, "token") as client:
            await client.call("GET", "/x")
    return str(caught.value)


async def ask_as_runner(url: str, *, tls: ssl.SSLContext | None = None) -> str:
    async with HttpSession({}, connect_seconds=0.3) as session:
        server = Server(url=url, session=session, clock=SystemClock(), tls=tls)
        with pytest.raises(RunnerApiTemporaryError) as caught:
            await server.call("GET", "/x", endpoint="x", headers={}, body=b"", attempts=1)
    return str(caught.value)


async def expect(url: str, *parts: str, tls: ssl.SSLContext | None = None) -> None:
    """Call the address as a user and as a runner, and check that both messages have all parts and no inner details."""
    for text in (await ask_as_user(url), await ask_as_runner(url, tls=tls)):
        for part in parts:
            assert part in text, text
        for inner in ("SSLContext", "ssl:default", "Errno", "Unknown error", "Operation not permitted", "_ssl.c"):
            assert inner not in text, text


async def test_an_unknown_name(place: Place) -> None:
    await expect("http://nowhere.invalid:81", "nowhere.invalid:81", "the name nowhere.invalid is not known", "check")
    await expect("https://nowhere.invalid", "nowhere.invalid:443", "the name nowhere.invalid is not known")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_port_without_a_server(place: Place, scheme: str, host: str) -> None:
    port = place.take_unused_port()
    await expect(f"{scheme}://{host}:{port}", f"{host}:{port} refused the connection", "no server listens there")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_connection_that_is_not_accepted(place: Place, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_client, "CONNECT_SECONDS", 0.3)
    port = place.take_full_port()
    await expect(f"{scheme}://127.0.0.1:{port}", f"127.0.0.1:{port} did not answer within 0.3 s", "firewall")


async def test_a_server_that_never_answers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    monkeypatch.setattr(user_client, "READ_SECONDS", 0.2)
    url = f"http://127.0.0.1:{await place.serve(be_silent)}"
    assert "did not answer within 0.2 s" in await ask_as_user(url)
    async with HttpSession({}) as session:
        server = Server(url=url, session=session, clock=SystemClock())
        with pytest.raises(RunnerApiTemporaryError, match=r"127\.0\.0\.1:\d+ did not answer within 0\.2 s"):
            await server.call("GET", "/x", endpoint="x", headers={}, body=b"", attempts=1, timeout=0.2)


async def test_a_certificate_of_an_unknown_authority(place: Place) -> None:
    port = await place.serve(tls=server_context(place.authority.issue("server")))
    url = f"https://127.0.0.1:{port}"
    await expect(url, f"the certificate of 127.0.0.1:{port} is not trusted", "authority")
    assert "SSL_CERT_FILE" in await ask_as_user(url)
    assert "tls-ca-file" in await ask_as_runner(url)


async def test_the_advice_about_an_unknown_authority_helps(place: Place) -> None:
    port = await place.serve(tls=server_context(place.authority.issue("server")))
    environment = os.environ | {
        "SSL_CERT_FILE": str(place.authority.file),
        "REMUDA_URL": f"https://localhost:{port}",
        "REMUDA_TOKEN": "token",
    }
    command = [sys.executable, "-m", "remuda.cli.main", "job", "list", "--output", "json"]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"[]\n")


@pytest.mark.parametrize(
    ("hosts", "first_day", "last_day", "cause"),
    [
        (("127.0.0.1",), -3, -1, "has expired"),
        (("127.0.0.1",), 1, 3, "is not valid yet"),
        (("127.0.0.2",), -1, 1, "is for another address"),
    ],
)
async def test_an_invalid_certificate(
    place: Place, hosts: tuple[str, ...], first_day: int, last_day: int, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = place.authority.issue("server", hosts, first_day=first_day, last_day=last_day)
    port = await place.serve(tls=server_context(files))
    tls = tls_context(ca_file=str(place.authority.file))
    text = await ask_as_runner(f"https://127.0.0.1:{port}", tls=tls)
    assert f"the certificate of 127.0.0.1:{port} {cause}" in text


async def test_a_certificate_for_another_name(place: Place) -> None:
    port = await place.serve(tls=server_context(place.authority.issue("server", ("gitlab.example",))))
    tls = tls_context(ca_file=str(place.authority.file))
    text = await ask_as_runner(f"https://localhost:{port}", tls=tls)
    assert f"the certificate of localhost:{port} is for another host name" in text
    assert "use the host name that the certificate was made for" in text


async def test_tls_to_a_plain_port(place: Place) -> None:
    port = await place.serve(answer_bad_request)
    await expect(f"https://127.0.0.1:{port}", f"127.0.0.1:{port} does not speak TLS", "write http://")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
@pytest.mark.parametrize("handler", [send_tls_alert, answer_as_nginx])
async def test_plain_http_to_a_tls_port(place: Place, host: str, handler: Handler) -> None:
    """127.0.0.2 is called with aiohttp, 127.0.0.1 with the client for this machine."""
    port = await place.serve(handler)
    await expect(f"http://{host}:{port}", f"{host}:{port} speaks TLS, not plain HTTP; write https://")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_plain_http_to_a_server_of_tls(place: Place, host: str) -> None:
    port = await place.serve(tls=server_context(place.authority.issue("server")))
    await expect(f"http://{host}:{port}", f"{host}:{port}", "https://")


async def test_a_server_that_hangs_up(place: Place) -> None:
    port = await place.serve(hang_up)
    await expect(f"http://127.0.0.1:{port}", f"127.0.0.1:{port} closed the connection", "if it speaks TLS")


async def test_a_missing_client_certificate(place: Place) -> None:
    files = place.authority.issue("server")
    port = await place.serve(tls=server_context(files, client_authority=place.authority.file))
    text = await ask_as_runner(f"https://127.0.0.1:{port}", tls=tls_context(ca_file=str(place.authority.file)))
    assert f"127.0.0.1:{port}" in text
    assert "requires a client certificate" in text


async def test_a_proxy_without_a_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    port = place.take_unused_port()
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{port}")
    for text in (await ask_as_user("https://gitlab.invalid"), await ask_as_runner("https://gitlab.invalid")):
        assert f"the proxy for gitlab.invalid:443 cannot be used: 127.0.0.1:{port} refused the connection" in text
        assert "NO_PROXY" in text
        assert "secret" not in text


async def test_a_proxy_that_refuses(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    port = await place.serve(answer_407)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    for text in (await ask_as_user("https://gitlab.invalid"), await ask_as_runner("https://gitlab.invalid")):
        assert f"the proxy 127.0.0.1:{port} does not connect to gitlab.invalid:443: it answered 407" in text


async def test_a_server_on_this_machine_is_called_without_the_proxy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{place.take_unused_port()}")
    port = await place.serve()
    async with UserClient(f"http://127.0.0.1:{port}", "token") as client:
        assert await client.call("GET", "/x") == []
