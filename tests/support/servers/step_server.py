"""A server for tests of standard steps: git over smart HTTP for one job token, and the two artifact endpoints.

`StepServer` has the received requests and the planned answers. Git is real (`git http-backend`); repositories are below
`root`.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.git_client import git
from tests.support.servers.http_server import PlainHandler, run_http_server

TOKEN = "glcbt-1_abc"
BASIC = "Basic " + base64.b64encode(f"gitlab-ci-token:{TOKEN}".encode()).decode()


@dataclass
class StepServer:
    """State of the server: received requests and planned answers."""

    port: int
    root: Path
    answers: list[int] = field(default_factory=list)
    """Statuses for the next artifact requests, then success. -1: the connection is closed without an answer."""
    git_answers: list[int] = field(default_factory=list)
    """Statuses for the next git requests, then success. 0: success. -1: the connection is closed without an answer."""
    speaks_version_2: bool = False
    """True if git may use protocol version 2, in which a client can fetch every commit."""
    requests: list[str] = field(default_factory=list)
    packs: int = 0
    """Number of POST requests of git: fetches of objects."""
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


MESSAGE = b'{"message":"told by the test"}'


class _Handler(PlainHandler):
    """Git over smart HTTP for the job token, and the two artifact endpoints."""

    state: StepServer

    def respond(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/group/"):
            self._git()
            return
        self.state.requests.append(f"{self.command} {self.path}")
        if path == "/storage":
            # The storage is another server, which must not receive the token.
            self.answer(403 if "JOB-TOKEN" in self.headers else 200, self.state.archives[path])
            return
        if "direct_download" in self.path and "/storage" in self.state.archives:
            self.answer(302, headers={"Location": f"http://localhost:{self.state.port}/storage"})
            return
        if self.headers["JOB-TOKEN"] != TOKEN:
            self.answer(403, MESSAGE)
            return
        status = self.state.answers.pop(0) if self.state.answers else 0
        if status == -1:  # like a crash of the server
            self.close_connection = True
            return
        if status == 413:  # refused without reading the body, as servers do
            self.close_connection = True
            self.answer(413, MESSAGE)
        elif self.command == "POST":
            form = self._read_chunks()
            self.answer(status or 201, MESSAGE)
            if not status:
                self.state.forms.append(form)
        elif status:
            self.answer(status, MESSAGE)
        else:
            self.answer(200 if path in self.state.archives else 404, self.state.archives.get(path, b""))

    def _read_chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _git(self) -> None:
        body = self.read_body()
        self.state.packs += self.command == "POST"
        status = self.state.git_answers.pop(0) if self.state.git_answers else 0
        if status == -1:  # like a crash of the server
            self.close_connection = True
            return
        if status:
            self.answer(status, MESSAGE)
            return
        if self.headers["Authorization"] != BASIC:
            self.answer(401, headers={"WWW-Authenticate": "Basic"})
            return
        protocol = (self.headers["Git-Protocol"] or "") if self.state.speaks_version_2 else ""
        self.answer_with_git(self.state.root, body, protocol)


@contextmanager
def run_step_server(root: Path) -> Iterator[StepServer]:
    """Run the server on loopback while the block runs."""

    class Bound(_Handler):
        pass

    with run_http_server(Bound) as server:
        Bound.state = StepServer(port=server.server_port, root=root)
        yield Bound.state


def create_repository(bare: Path, source: Path, *versions: dict[str, str]) -> list[str]:
    """Create a bare repository with a commit on main for each version of its files. Returns the hashes."""
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
