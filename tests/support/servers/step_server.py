"""A server for standard steps: git over smart HTTP for one job token, and the two artifact endpoints.

A test reads what was asked and says what shall be answered; `StepServer` is the state of both. The git is real
(`git http-backend`), repositories lie below `root`.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.git_client import git
from tests.support.servers.http_server import PlainHandler, serving_http

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
            # Somebody else's server, which must not see the token.
            self.answer(403 if "JOB-TOKEN" in self.headers else 200, self.state.archives[path])
            return
        if "direct_download" in self.path and "/storage" in self.state.archives:
            self.answer(302, headers={"Location": f"http://localhost:{self.state.port}/storage"})
            return
        if self.headers["JOB-TOKEN"] != TOKEN:
            self.answer(403, MESSAGE)
            return
        status = self.state.answers.pop(0) if self.state.answers else 0
        if status == -1:  # the server dies
            self.close_connection = True
            return
        if status == 413:  # refused without reading, as servers do
            self.close_connection = True
            self.answer(413, MESSAGE)
        elif self.command == "POST":
            form = self._chunks()
            self.answer(status or 201, MESSAGE)
            if not status:
                self.state.forms.append(form)
        elif status:
            self.answer(status, MESSAGE)
        else:
            self.answer(200 if path in self.state.archives else 404, self.state.archives.get(path, b""))

    def _chunks(self) -> bytes:
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
        if status == -1:  # the server dies
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
def serving(root: Path) -> Iterator[StepServer]:
    """The server, on loopback, as long as this lasts."""

    class Bound(_Handler):
        pass

    with serving_http(Bound) as server:
        Bound.state = StepServer(port=server.server_port, root=root)
        yield Bound.state


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
