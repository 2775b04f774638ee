import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.transfer import HttpError, find_transient, read_some, request

LOGIN = f"Proxy-Authorization: Basic {base64.b64encode(b'user:p@ss').decode()}"


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
def test_statuses_of_an_unreachable_server(status: int) -> None:
    transient = find_transient(HttpError(status, "text", retry_after=7))
    assert transient is not None
    assert (transient.unreachable, transient.retry_after) == (True, 7)


@pytest.mark.parametrize("status", [408, 500, 501])
def test_transient_statuses_of_a_reachable_server(status: int) -> None:
    transient = find_transient(HttpError(status, "text"))
    assert transient is not None
    assert not transient.unreachable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_refusals_are_final(status: int) -> None:
    assert find_transient(HttpError(status, "text")) is None


@pytest.mark.parametrize("url", ["http://host:port/", "http://[::1", "ftp://host/", "http:///path", "http://host:0/"])
def test_an_invalid_url_is_an_error(url: str) -> None:
    with pytest.raises(StepError, match="is not an http or https URL with a host name"):
        request("GET", url)


def test_an_interrupted_response_is_a_transient_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
        theirs.close()
        response = HTTPResponse(ours)
        response.begin()
        with response, pytest.raises(HttpError, match="broke") as caught:
            read_some(response, 100)
    assert find_transient(caught.value) is not None


def test_an_interrupted_error_response_is_an_http_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")

        thread = threading.Thread(target=serve, name="server")
        thread.start()
        with pytest.raises(HttpError):
            request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()


@contextmanager
def serve_proxy(response: bytes) -> Iterator[tuple[str, list[str]]]:
    """Serve one request. Yields host and port, and a list that gets the lines of the request's head."""
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                lines.extend(connection.recv(65536).decode().split("\r\n"))
                connection.sendall(response)

        thread = threading.Thread(target=serve, name="proxy")
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", lines
        thread.join()


def use_proxy(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv(name, url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "")


def test_user_and_password_are_sent_to_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_proxy(b"HTTP/1.1 204 None\r\n\r\n") as (address, lines):
        use_proxy(monkeypatch, f"http://user:p%40ss@{address}")
        request("GET", "http://server.example/file").close()
    assert lines[0] == "GET http://server.example/file HTTP/1.1"
    assert LOGIN in lines


def test_a_tunnel_gets_user_and_password_and_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (address, lines):
        use_proxy(monkeypatch, f"http://user:p%40ss@{address}")
        with pytest.raises(HttpError, match=r"the proxy 127\.0\.0\.1 answered 407 Proxy Auth") as caught:
            request("GET", "https://server.example/file", headers={"X": "y"})
    assert lines[0].startswith("CONNECT server.example:443 ")
    assert LOGIN in lines
    assert "X: y" not in lines
    assert find_transient(caught.value) is None


@pytest.mark.parametrize("status", [404, 413])
def test_a_refusal_of_the_proxy_is_not_one_of_the_server(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with serve_proxy(f"HTTP/1.1 {status} Refused\r\n\r\n".encode()) as (address, _):
        use_proxy(monkeypatch, address)
        with pytest.raises(HttpError, match=f"the proxy 127.0.0.1 answered {status}") as caught:
            request("GET", "https://server.example/file")
    assert caught.value.status == 407
    assert find_transient(caught.value) is None


def test_a_proxy_that_cannot_reach_the_server_is_a_transient_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_proxy(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as (address, lines):
        use_proxy(monkeypatch, address)
        with pytest.raises(HttpError, match="503 Service Unavailable") as caught:
            request("GET", "https://server.example/file")
    transient = find_transient(caught.value)
    assert transient is not None
    assert transient.unreachable
    assert not [line for line in lines if line.startswith("Proxy-Authorization")]


def test_a_password_for_a_proxy_with_tls_is_not_sent_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_proxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as (address, lines):
        use_proxy(monkeypatch, f"https://user:p%40ss@{address}")
        with pytest.raises(HttpError):
            request("GET", "https://server.example/file")
    assert LOGIN not in lines


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("proxy", "port"), [("http://proxy", 80), ("proxy", 80), ("https://proxy", 443)])
def test_default_port_of_a_proxys_scheme(monkeypatch: pytest.MonkeyPatch, scheme: str, proxy: str, port: int) -> None:
    addresses: list[tuple[str, int]] = []

    def refuse(address: tuple[str, int], *_: object) -> socket.socket:
        addresses.append(address)
        raise ConnectionRefusedError

    use_proxy(monkeypatch, proxy)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(HttpError):
        request("GET", f"{scheme}://server.example/file")
    assert addresses == [("proxy", port)]


def test_an_invalid_proxy_is_an_error_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    use_proxy(monkeypatch, "http://user:se/cret@proxy:3128")
    with pytest.raises(StepError, match="special characters of user and password as %XX") as caught:
        request("GET", "https://server.example/file")
    assert "'se'" not in str(caught.value)
