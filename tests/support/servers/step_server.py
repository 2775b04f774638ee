"""A server for standard steps: git over smart HTTP for one job token, and the two artifact endpoints.

A test reads what was asked and says what shall be answered; `StepServer` is the state of both. The git is real
(`git http-backend`), repositories lie below `root`.
"""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOKEN = "glcbt-1_abc"
BASIC = "Basic " + base64.b64encode(f"gitlab-ci-token:{TOKEN}".encode()).decode()


@dataclass
class StepServer:
    """What the test's server was asked and shall answer."""

    port: int
    root: Path
    answers: list[int] = field(default_factory=list)
    """Statuses for the next artifact requests; then success."""
    git_answers: list[int] = field(default_factory=list)
    """The same for git; -1 is no answer at all, 0 the right one."""
    speaks_version_2: bool = False
    """Whether git may use the newer protocol, in which every commit can be asked for."""
    requests: list[str] = field(default_factory=list)
    packs: int = 0
    """How often somebody asked for objects of a repository."""
    archives: dict[str, bytes] = field(default_factory=dict)
    forms: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/v4"

    @property
    def repo_url(self) -> str:
        return f"http://gitlab-ci-token:{TOKEN}@127.0.0.1:{self.port}/group/project.git"


class _Handler(BaseHTTPRequestHandler):
    """Git over smart HTTP for the job token, and the two artifact endpoints."""

    protocol_version = "HTTP/1.1"
    state: StepServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._any()

    def do_POST(self) -> None:
        self._any()

    def _any(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/group/"):
            self._git(path)
            return
        self.state.requests.append(f"{self.command} {self.path}")
        if path == "/storage":
            # Somebody else's server, which must not see the token.
            self._answer(403 if "JOB-TOKEN" in self.headers else 200, self.state.archives[path])
            return
        if "direct_download" in self.path and "/storage" in self.state.archives:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.state.port}/storage")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.headers["JOB-TOKEN"] != TOKEN:
            self._answer(403)
            return
        status = self.state.answers.pop(0) if self.state.answers else 0
        if status == -1:  # the server dies
            self.close_connection = True
            return
        if status == 413:  # refused without reading, as servers do
            self.close_connection = True
            self._answer(413)
        elif self.command == "POST":
            form = self._chunks()
            self._answer(status or 201)
            if not status:
                self.state.forms.append(form)
        elif status:
            self._answer(status)
        else:
            self._answer(200 if path in self.state.archives else 404, self.state.archives.get(path, b""))

    def _answer(self, status: int, body: bytes = b'{"message":"told by the test"}') -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _git(self, path: str) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.state.packs += self.command == "POST"
        status = self.state.git_answers.pop(0) if self.state.git_answers else 0
        if status == -1:  # the server dies
            self.close_connection = True
            return
        if status:
            self._answer(status)
            return
        if self.headers["Authorization"] != BASIC:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        env = os.environ | {
            "GIT_PROJECT_ROOT": str(self.state.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": urlsplit(self.path).query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers["Content-Type"] or "",
            "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
            "HTTP_GIT_PROTOCOL": (self.headers["Git-Protocol"] or "") if self.state.speaks_version_2 else "",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(root: Path) -> Iterator[StepServer]:
    """The server, on loopback, as long as this lasts."""

    class Bound(_Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Bound) as listening:
        Bound.state = StepServer(port=listening.server_port, root=root)
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), name="test server")
        thread.start()
        try:
            yield Bound.state
        finally:
            listening.shutdown()
            thread.join()


def git(folder: Path, *arguments: str) -> str:
    """What git prints there."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def a_repository(bare: Path, source: Path, *versions: dict[str, str]) -> list[str]:
    """A bare repository with a commit on main for each version of its files; their hashes."""
    bare.mkdir(parents=True)
    source.mkdir()
    git(bare, "init", "-q", "--bare", "-b", "main")
    git(source, "init", "-q", "-b", "main")
    hashes = []
    for number, files in enumerate(versions):
        for name, text in files.items():
            (source / name).write_text(text)
        git(source, "add", ".")
        git(source, "commit", "-q", "-m", str(number))
        hashes.append(git(source, "rev-parse", "HEAD"))
    git(source, "push", "-q", str(bare), "main")
    return hashes
