"""Files over HTTP, from a server of the test's own."""

from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from tests.support.servers.http_server import PlainHandler, serving_http

from remuda.lib.clock import VirtualClock
from remuda.localrun.sources.remote_files import LIMIT_BYTES, Remote, read_allowed
from remuda.pipeline import SourceProblem


class Server(ThreadingHTTPServer):
    """The server, with the clock that its clients go by."""

    clock = VirtualClock()


class Pages(PlainHandler):
    """Answers by path."""

    protocol_version = "HTTP/1.0"

    def respond(self) -> None:
        assert isinstance(self.server, Server)
        port = self.server.server_port
        moves = {
            "/ci/moved": "/ci/good.yml",
            "/ci/away": f"http://localhost:{port}/ci/good.yml",
            "/ci/loop": "/ci/loop",
            "/ci/file": "file:///etc/hostname",
        }
        bodies = {
            "/ci/good.yml": b"job: {script: [x]}",
            "/ci/large": b"#" * (LIMIT_BYTES + 1),
            "/ci/full": b"#" * LIMIT_BYTES,
            "/ci/latin": b"\xe9",
        }
        if self.path == "/ci/slow":
            self.server.clock.jump(3600)
        if self.path in moves:
            self.answer(302, headers={"Location": moves[self.path]})
        elif self.path in bodies or self.path == "/ci/slow":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(bodies.get(self.path, b"x"))
        else:
            self.send_error(404)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving_http(Pages, Server) as server:
        assert isinstance(server, Server)
        yield server


def fetched(server: Server, path: str) -> str:
    site = f"http://127.0.0.1:{server.server_port}"
    remote = Remote(read_allowed([f"{site}/ci/"]), clock=server.clock)
    found = remote.text(site + path)
    assert remote.text(site + path) is found
    return found.reason if isinstance(found, SourceProblem) else found


def test_a_file(server: Server) -> None:
    assert fetched(server, "/ci/good.yml") == "job: {script: [x]}"
    assert fetched(server, "/ci/moved") == "job: {script: [x]}"
    assert len(fetched(server, "/ci/full")) == LIMIT_BYTES


def test_what_is_refused(server: Server) -> None:
    assert "not allowed here" in fetched(server, "/other.yml")
    assert fetched(server, "/ci/away").startswith("the server redirects to http://localhost:")
    assert "cannot be fetched" in fetched(server, "/ci/file")
    assert "larger than" in fetched(server, "/ci/large")
    assert "not UTF-8" in fetched(server, "/ci/latin")
    assert "cannot be fetched" in fetched(server, "/ci/none")
    assert "cannot be fetched" in fetched(server, "/ci/loop")
    assert "timed out" in fetched(server, "/ci/slow")


def test_nobody_listens(server: Server) -> None:
    remote = Remote(read_allowed(["http://127.0.0.1:1/"]))
    found = remote.text("http://127.0.0.1:1/a.yml")
    assert isinstance(found, SourceProblem)
    assert "Connection refused" in found.reason
