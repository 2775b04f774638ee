"""The HTTP client for servers on this machine, tested with a server on a real socket."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from remuda.wire.http_session import HttpSession
from remuda.wire.loopback_http import CannotConnectError, LoopbackAnswer, LoopbackClient, is_loopback


class Server:
    """Answers every request with the same bytes, and records the requests."""

    def __init__(self) -> None:
        self.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                size = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                self.bodies.append(await reader.readexactly(int(size[0].partition(b":")[2])) if size else b"")
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    fake = Server()
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listening:
        fake.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield fake


@pytest.fixture
async def session() -> AsyncIterator[HttpSession]:
    async with HttpSession({"X-Own": "1"}) as http_session:
        yield http_session


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:80", True),
        ("http://localhost/x", True),
        ("http://[::1]:1/x", True),
        ("https://127.0.0.1", False),
        ("http://example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("nonsense", False),
    ],
)
def test_only_plain_http_addresses_of_this_machine_are_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


async def test_a_call_carries_its_body_and_all_headers(server: Server, session: HttpSession) -> None:
    server.answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\nX-Said: yes\r\n\r\nok"
    async with session.request("POST", f"{server.url}/a%2Fb?c=1", data=b"body", headers={"X-Other": "2"}) as answer:
        assert (answer.status, await answer.read()) == (201, b"ok")
        assert answer.headers["x-said"] == "yes"
    assert server.heads[0].startswith(b"POST /a%2Fb?c=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"X-Own: 1\r\nX-Other: 2\r\n" in server.heads[0]
    assert server.bodies == [b"body"]


async def test_a_connection_serves_next_call_unless_the_server_ends_it(server: Server, session: HttpSession) -> None:
    for _ in range(3):
        async with session.request("GET", server.url, headers={}) as answer:
            assert await answer.read() == b""
    assert server.connections == 1
    server.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    for _ in range(2):
        async with session.request("GET", server.url, headers={}) as answer:
            await answer.read()
    assert server.connections == 2


async def test_a_connection_that_expires_while_it_is_put_back_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clock passes KEPT_SECONDS between two checks of the same connection.
    answers = iter([True, False])
    monkeypatch.setattr(LoopbackAnswer, "is_usable", lambda _connection: next(answers, False))
    client = LoopbackClient(10)
    for _ in range(2):
        async with client.request("GET", server.url, data=None, headers={}, read_seconds=None) as answer:
            assert await answer.read() == b""
    assert server.connections == 2
    client.close()


async def test_an_answer_that_is_not_read_costs_its_connection(server: Server, session: HttpSession) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst"
    async with session.request("GET", server.url, headers={}):
        pass
    async with session.request("GET", server.url, headers={}) as answer:
        assert await answer.read() == b"first"
    assert server.connections == 2


async def test_a_long_chunked_body_is_read_completely(server: Server, session: HttpSession) -> None:
    part = b"0123456789abcdef" * 4096
    chunk = b"10000\r\n" + part + b"\r\n"
    server.answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 64 + b"0\r\n\r\n"
    async with session.request("GET", server.url, headers={}) as answer:
        assert b"".join([piece async for piece in answer.content.iter_chunked(1000)]) == part * 64


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"])
async def test_a_broken_answer_is_an_error(server: Server, session: HttpSession, answer: bytes) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(break_off, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionError):
            async with session.request("GET", url, headers={}) as response:
                await response.read()


async def test_an_answer_that_is_not_http_is_an_error(server: Server, session: HttpSession) -> None:
    server.answer = b"SSH-2.0-OpenSSH\r\n"
    with pytest.raises(ConnectionError, match="no HTTP"):
        async with session.request("GET", server.url, headers={}):
            pass


async def test_a_server_that_is_silent_is_an_error(server: Server, session: HttpSession) -> None:
    server.answer = b""
    with pytest.raises(TimeoutError):
        async with session.request("GET", server.url, headers={}, read_seconds=0.01):
            pass


async def test_invalid_addresses_and_headers_are_refused(server: Server) -> None:
    client = LoopbackClient(10)
    for url, headers in (
        (f"{server.url}/a b", {}),
        (f"{server.url}/a\r\nX: y", {}),
        (server.url, {"PRIVATE-TOKEN": "a\r\nX: y"}),
    ):
        with pytest.raises(ValueError):
            async with client.request("GET", url, data=None, headers=headers, read_seconds=None):
                pass
    assert server.connections == 0


async def test_a_refused_connection_has_its_own_error(unused_tcp_port: int, session: HttpSession) -> None:
    with pytest.raises(CannotConnectError, match=r"127\.0\.0\.1"):
        async with session.request("GET", f"http://127.0.0.1:{unused_tcp_port}", headers={}):
            pass
