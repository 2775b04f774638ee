import socket
import threading
from http.client import HTTPResponse

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.transfer import HttpError, find_transient, read_some, request


@pytest.mark.parametrize("status", [0, 429, 502, 503, 504])
def test_a_server_that_is_away_is_waited_for(status: int) -> None:
    may_pass = find_transient(HttpError(status, "text", retry_after=7))
    assert may_pass is not None
    assert (may_pass.unreachable, may_pass.retry_after) == (True, 7)


@pytest.mark.parametrize("status", [408, 500, 501])
def test_trouble_of_a_server_that_is_there_gets_a_few_tries(status: int) -> None:
    may_pass = find_transient(HttpError(status, "text"))
    assert may_pass is not None
    assert not may_pass.unreachable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_refusals_are_final(status: int) -> None:
    assert find_transient(HttpError(status, "text")) is None


@pytest.mark.parametrize("url", ["http://host:port/", "http://[::1", "ftp://host/", "http:///path", "http://host:0/"])
def test_what_is_no_address_is_an_error_in_words(url: str) -> None:
    with pytest.raises(StepError, match="is not an HTTP URL of a server"):
        request("GET", url)


def test_an_answer_that_breaks_off_may_come_whole_later() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
        theirs.close()
        response = HTTPResponse(ours)
        response.begin()
        with response, pytest.raises(HttpError, match="broke") as caught:
            read_some(response, 100)
    assert find_transient(caught.value) is not None


def test_a_refusal_that_breaks_off_is_no_other_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")

        thread = threading.Thread(target=answer, name="server")
        thread.start()
        with pytest.raises(HttpError):
            request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()
