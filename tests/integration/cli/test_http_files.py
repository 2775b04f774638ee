"""Included files that `remuda run` fetches over HTTP: allowed addresses, redirects, size limit, timeout and errors."""

from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.lib.clock import VirtualClock
from remuda.localrun.sources.included_files import WorkTreeSources
from remuda.localrun.sources.remote_files import LIMIT_BYTES, Remote, read_allowed
from remuda.pipeline import Facts, SourceProblem


class Server(ThreadingHTTPServer):
    """HTTP server with the clock that its clients use for timeouts."""

    clock = VirtualClock()


class Pages(PlainHandler):
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
            "/ci/api/v4/templates/gitlab_ci_ymls/Mine": b'{"name": "Mine", "content": "mine: {script: [x]}"}',
            "/ci/Jobs/Other.gitlab-ci.yml": b"other: {script: [x]}",
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
    with run_http_server(Pages, Server) as server:
        assert isinstance(server, Server)
        yield server


def fetch(server: Server, path: str) -> str:
    site = f"http://127.0.0.1:{server.server_port}"
    remote = Remote(read_allowed([f"{site}/ci/"]), clock=server.clock)
    text = remote.text(site + path)
    assert remote.text(site + path) is text
    return text.reason if isinstance(text, SourceProblem) else text


def test_templates_come_from_a_server(server: Server, tmp_path: Path) -> None:
    source = f"http://127.0.0.1:{server.server_port}/ci"
    sources = WorkTreeSources(tmp_path, Facts(), templates=source)
    assert sources.template("Mine.gitlab-ci.yml") == "mine: {script: [x]}"
    assert sources.template("Jobs/Other.gitlab-ci.yml") == "other: {script: [x]}"
    assert "rust:latest" in str(sources.template("Rust.gitlab-ci.yml"))
    missing = sources.template("Pyton.gitlab-ci.yml")
    assert isinstance(missing, SourceProblem)
    assert "Python.gitlab-ci.yml; or pass --templates" in missing.suggestion
    down = WorkTreeSources(tmp_path, Facts(), templates="http://127.0.0.1:1").template("Rust.gitlab-ci.yml")
    assert isinstance(down, SourceProblem)
    assert "cannot be fetched" in down.reason


def test_files_and_redirects_are_fetched(server: Server) -> None:
    assert fetch(server, "/ci/good.yml") == "job: {script: [x]}"
    assert fetch(server, "/ci/moved") == "job: {script: [x]}"
    assert len(fetch(server, "/ci/full")) == LIMIT_BYTES


def test_problems_are_reported_with_their_reason(server: Server) -> None:
    assert "not allowed here" in fetch(server, "/other.yml")
    assert fetch(server, "/ci/away").startswith("the server redirects to http://localhost:")
    assert "cannot be fetched" in fetch(server, "/ci/file")
    assert "larger than" in fetch(server, "/ci/large")
    assert "not UTF-8" in fetch(server, "/ci/latin")
    assert "cannot be fetched" in fetch(server, "/ci/none")
    assert "cannot be fetched" in fetch(server, "/ci/loop")
    assert "timed out" in fetch(server, "/ci/slow")


def test_a_refused_connection_is_a_source_problem(server: Server) -> None:
    remote = Remote(read_allowed(["http://127.0.0.1:1/"]))
    problem = remote.text("http://127.0.0.1:1/a.yml")
    assert isinstance(problem, SourceProblem)
    assert "Connection refused" in problem.reason
