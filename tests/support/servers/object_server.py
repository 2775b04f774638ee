"""A small object storage for tests: an HTTP server with one bucket in memory that accepts only signed URLs.

A test reads the objects and can set error statuses. The server checks a signature by computing it again with the
manager's own function; whether that function is correct is tested with a real S3 server.
"""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote

from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.manager.compile.object_urls import bucket_of, sign_url
from remuda.manager.config.cache import S3Config

BUCKET = "caches"


@dataclass
class ObjectServer:
    """State of the server: objects by the last part of their names, received requests, planned answers."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    """Statuses of the next answers, then normal answers. -1: the connection breaks during the answer."""
    requests: list[str] = field(default_factory=list)

    @property
    def config(self) -> S3Config:
        """Configuration of a runner that uses this server."""
        address = f"127.0.0.1:{self.port}"
        return S3Config(server_address=address, access_key="AK", secret_key="SK", bucket=BUCKET, insecure=True)


class _Handler(PlainHandler):
    state: ObjectServer

    def respond(self) -> None:
        self.state.requests.append(f"{self.command} {self.path.partition('?')[0].rpartition('/')[2]}")
        if self.command == "PUT":
            self._put()
        else:
            self._get()

    def _get(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if self._answer_with_error():
            return
        data = self.state.objects.get(name)
        if data is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif (requested := self.headers.get("Range", "")).startswith("bytes=-"):
            self.answer(206, data[-int(requested[7:]) :])
        else:
            self.answer(200, data)

    def _put(self) -> None:
        assert "Transfer-Encoding" not in self.headers
        data = self.read_body()
        if self._answer_with_error():
            return
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        if self.headers["Content-MD5"] != digest:
            self.answer(400, b"<Error><Code>BadDigest</Code></Error>")
            return
        self.state.objects[self.path.partition("?")[0].rpartition("/")[2]] = data
        self.answer(200, b"")

    def _answer_with_error(self) -> bool:
        """Send a planned error, or 403 if the URL is not signed. Returns False if there is no error."""
        status = self.state.answers.pop(0) if self.state.answers else 0
        if not self._is_signed():
            status = 403
        if status == -1:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"PK")
            self.close_connection = True
        elif status:
            self.answer(status, b"<Error><Code>AccessDenied</Code></Error>" if status == 403 else b"")
        return bool(status)

    def _is_signed(self) -> bool:
        """True if the URL is signed with the keys for this method. The server does not check whether it has expired."""
        path, _, query = self.path.partition("?")
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        try:
            moment = datetime.strptime(fields["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            seconds = int(fields["X-Amz-Expires"])
        except (KeyError, ValueError):
            return False
        name = unquote(path).removeprefix(f"/{BUCKET}/")
        expected = sign_url(bucket_of(self.state.config), self.command, name, at=moment.timestamp(), seconds=seconds)
        return expected == f"http://127.0.0.1:{self.state.port}{self.path}"


@contextmanager
def run_object_server() -> Iterator[ObjectServer]:
    """Run the server on loopback while the block runs."""
    state = ObjectServer()
    handler = type("Handler", (_Handler,), {"state": state})
    with run_http_server(handler) as server:
        state.port = server.server_port
        yield state
