"""A small Vault server for tests: login with a job's JWT, and versions 1 and 2 of the key-value store.

A test sets values and error statuses, and reads the received requests.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.http_server import PlainHandler, run_http_server

JWT = "header.payload.signature-of-the-job"
TOKEN = "hvs.CAESIJ-client-token"
PASSWORD = "correct-horse-battery"


@dataclass
class FakeVault:
    """State of the server: stored values, received requests, planned answers."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    """Statuses of the next answers, then normal answers. -1: no answer until `release` is set."""
    requests: list[str] = field(default_factory=list)
    namespaces: set[str | None] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)
    values: dict[str, Any] = field(default_factory=dict)
    jwt: str | None = JWT
    """The JWT that may log in; None: any JWT."""

    def secret(self, name: str = "password", *, engine: str = "kv-v2", path: str = "db", **rest: Any) -> dict[str, Any]:
        auth = {"name": "jwt", "path": "gitlab", "data": {"role": "deploy"}}
        server = {"url": f"http://127.0.0.1:{self.port}", "namespace": "team", "auth": auth}
        vault = {"server": server, "engine": {"name": engine, "path": "ops"}, "path": path, "field": name}
        return {"vault": vault, "file": False} | rest


class _Handler(PlainHandler):
    state: FakeVault

    def respond(self) -> None:
        state = self.state
        body = self.read_body()
        state.requests.append(f"{self.command} {self.path}")
        state.namespaces.add(self.headers["X-Vault-Namespace"])
        status = state.answers.pop(0) if state.answers else 0
        if status == -1:
            state.release.wait(60)
            self.close_connection = True
        elif status:
            self._answer_json(status, {"errors": ["this is said by the vault"]})
        elif self.path == "/v1/auth/gitlab/login":
            login = json.loads(body)
            is_valid = (
                login == {"role": "deploy", "jwt": state.jwt or login.get("jwt")} and login["jwt"].count(".") == 2
            )
            if is_valid:
                self._answer_json(200, {"auth": {"client_token": TOKEN}})
            else:
                self._answer_json(400, {"errors": ["no"]})
        elif self.headers["X-Vault-Token"] != TOKEN:
            self._answer_json(403, {"errors": ["permission denied"]})
        elif self.path == "/v1/auth/token/revoke-self":
            self._answer_json(204, None)
        elif self.path.removeprefix("/v1/") in state.values:
            self._answer_json(200, {"data": state.values[self.path.removeprefix("/v1/")]})
        else:
            self._answer_json(404, {"errors": []})

    def _answer_json(self, status: int, content: Any) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def run_vault_server() -> Iterator[FakeVault]:
    """Run the server on loopback while the block runs."""
    state = FakeVault()
    state.values["ops/data/db"] = {"data": {"password": PASSWORD, "port": 5432, "key": "first line\nsecond line\n}"}}
    state.values["ops/db"] = {"password": "from-version-one"}
    handler = type("Handler", (_Handler,), {"state": state})
    with run_http_server(handler) as server:
        state.port = server.server_port
        try:
            yield state
        finally:
            state.release.set()
