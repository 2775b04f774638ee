"""A small Vault for tests: real HTTP, a login with a job's token, two versions of the key-value store.

A test says what it holds and how it misbehaves, and reads what was asked.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.http_server import PlainHandler, serving_http

JWT = "header.payload.signature-of-the-job"
TOKEN = "hvs.CAESIJ-client-token"
PASSWORD = "correct-horse-battery"


@dataclass
class FakeVault:
    """What a test's Vault holds, and how it misbehaves."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    """Statuses of the next requests; then the right ones. -1: no answer at all."""
    requests: list[str] = field(default_factory=list)
    namespaces: set[str | None] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)
    values: dict[str, Any] = field(default_factory=dict)
    jwt: str | None = JWT
    """Who may log in; None: anybody with some token."""

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
            given = json.loads(body)
            known = given == {"role": "deploy", "jwt": state.jwt or given.get("jwt")} and given["jwt"].count(".") == 2
            self._answer_json(200 if known else 400, {"auth": {"client_token": TOKEN}} if known else {"errors": ["no"]})
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
def serving_vault() -> Iterator[FakeVault]:
    """The server, on loopback, as long as this lasts."""
    state = FakeVault()
    state.values["ops/data/db"] = {"data": {"password": PASSWORD, "port": 5432, "key": "first line\nsecond line\n}"}}
    state.values["ops/db"] = {"password": "from-version-one"}
    handler = type("Handler", (_Handler,), {"state": state})
    with serving_http(handler) as server:
        state.port = server.server_port
        try:
            yield state
        finally:
            state.release.set()
