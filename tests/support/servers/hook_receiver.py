"""A server that receives the requests of webhooks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """A server that records requests and answers with `status`, `headers` and `answer`."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.answer = 200, b"thanks"
        self.headers: dict[str, str] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def events(self, kind: str) -> list[dict[str, Any]]:
        bodies = [json.loads(body) for _, _, body in list(self.requests)]
        return [body for body in bodies if body.get("object_kind") == kind]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def receive_hooks() -> Iterator[Receiver]:
    """Context manager: runs a receiver in a thread."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
