"""Small HTTP servers for tests: a base class of handlers without logs, and a server thread."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_POLL_SECONDS = 0.02
"""Interval at which a server checks whether it must stop."""


class PlainHandler(BaseHTTPRequestHandler):
    """Calls `respond` for GET, POST and PUT."""

    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        """Answer one request. Subclasses implement it."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_PUT(self) -> None:
        self.respond()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def read_body(self) -> bytes:
        """Body of a request with Content-Length."""
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send an answer with Content-Length."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_with_git(self, root: Path, body: bytes, protocol: str = "") -> None:
        """Answer a git client with the output of `git http-backend` for the repositories below `root`."""
        address = urlsplit(self.path)
        env = os.environ | {
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": address.path,
            "QUERY_STRING": address.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers["Content-Type"] or "",
            "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
            "HTTP_GIT_PROTOCOL": protocol,
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(int(fields.pop("Status", "200").split()[0]), content, fields)


@contextmanager
def run_http_server(
    handler: type[BaseHTTPRequestHandler], server: type[ThreadingHTTPServer] = ThreadingHTTPServer
) -> Iterator[ThreadingHTTPServer]:
    """Run an HTTP server on a free port of loopback while the block runs."""
    with server(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(_POLL_SECONDS,), name="test server")
        thread.start()
        try:
            yield listening
        finally:
            listening.shutdown()
            thread.join()
