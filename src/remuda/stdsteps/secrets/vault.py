"""Reads secrets through Vault's HTTP API (Vault, OpenBao): logs in with a job's ID token, reads, logs out. Logs in once
for each server and login data, and reads each path once. Redirects are not followed, because the login data is only for
this server."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from remuda.lib.dataclass import dataclass
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.transfer import HttpError, is_address, read_some, request, with_retries

ENGINES = ("kv-v2", "kv-v1", "generic")
LARGEST_ANSWER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A Vault server, and the data with which the job logs in there."""

    url: str
    namespace: str
    login: str
    """The path of the auth method."""
    data: tuple[tuple[str, str], ...]
    """The login data; secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultSecret:
    """The place of a secret: server, secrets engine, path, and field."""

    server: Server
    engine: str
    mount: str
    path: str
    field: str


def read_secret(inputs: Inputs, login: Mapping[str, Any]) -> VaultSecret:
    """Parse the description of a secret. `login`: the secret part of the login data, such as the ID token. Raises
    StepError if the description is invalid."""
    server, engine = Inputs(inputs.mapping("server")), Inputs(inputs.mapping("engine"))
    auth = Inputs(server.mapping("auth"))
    url, namespace = server.text("url").rstrip("/"), server.text("namespace", "")
    auth.one_of("name", ("jwt",))
    data = {str(key): str(value) for key, value in (auth.mapping("data") | dict(login)).items()}
    secret = VaultSecret(
        server=Server(
            url=url,
            namespace=namespace,
            login=_check_path(auth.text("path", "jwt"), "auth path"),
            data=tuple(data.items()),
        ),
        engine=engine.one_of("name", ENGINES),
        mount=_check_path(engine.text("path", "kv-v2"), "engine path"),
        path=_check_path(inputs.text("path"), "path"),
        field=inputs.text("field"),
    )
    if not is_address(url) or "?" in url or "#" in url:
        raise StepError(f"{url!r} is not an http or https URL of a server without ? and #")
    for group in (inputs, server, auth, engine):
        group.done()
    return secret


class Vault:
    """A client of Vault servers. It keeps its logins until `log_out`, and reads each path once."""

    def __init__(self, *, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds
        self._tokens: dict[Server, str] = {}
        self._read: dict[tuple[Server, str], dict[str, Any]] = {}

    def read_value(self, secret: VaultSecret) -> str:
        """Return the value of the secret's field, as JSON if it is not a string. Raises StepError if the secret cannot
        be read or does not have the field."""
        middle = "/data" if secret.engine == "kv-v2" else ""
        place = f"{secret.mount}{middle}/{secret.path}"
        data = self._read_fields(secret.server, place)
        if secret.engine == "kv-v2":
            inner = data.get("data")
            data = inner if isinstance(inner, dict) else {}
        value = data.get(secret.field)
        if value is None:
            raise StepError(f"the secret {place} has no field {secret.field!r}")
        return value if isinstance(value, str) else json.dumps(value)

    def log_out(self) -> None:
        """Revoke all tokens of this client. A token that cannot be revoked stays valid until it expires."""
        for server, token in self._tokens.items():
            with suppress(HttpError, StepError):
                self._send("POST", server, "auth/token/revoke-self", token=token, data={})
        self._tokens.clear()

    def _read_fields(self, server: Server, place: str) -> dict[str, Any]:
        if (server, place) not in self._read:
            token = self._log_in(server)
            answer = self._ask(f"reading the secret {place}", "GET", server, place, token=token)
            self._read[server, place] = _read_part(answer, "data", f"the secret {place}")
        return self._read[server, place]

    def _log_in(self, server: Server) -> str:
        if server not in self._tokens:
            place = f"auth/{server.login}/login"
            answer = self._ask("logging in to read secrets", "POST", server, place, data=dict(server.data))
            token = _read_part(answer, "auth", "the login").get("client_token")
            if not isinstance(token, str) or not token:
                raise StepError(f"the login at {server.url} returned no token")
            self._tokens[server] = token
        return self._tokens[server]

    def _ask(self, what: str, method: str, server: Server, place: str, **rest: Any) -> Any:
        data = with_retries(f"{what} from {server.url}", lambda _: self._send(method, server, place, **rest))
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise StepError(f"{server.url} did not answer with JSON; check that it is the address of Vault") from None

    def _send(
        self, method: str, server: Server, place: str, *, token: str = "", data: dict[str, str] | None = None
    ) -> bytes:
        body = b"" if data is None else json.dumps(data).encode()
        headers = {"X-Vault-Request": "true"}
        headers |= {"X-Vault-Token": token} if token else {}
        headers |= {"X-Vault-Namespace": server.namespace} if server.namespace else {}
        if data is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        with request(
            method,
            f"{server.url}/v1/{quote(place)}",
            headers=headers,
            body=None if data is None else lambda: [body],
            redirects=0,
            answer_seconds=self._answer_seconds,
        ) as response:
            return read_some(response, LARGEST_ANSWER_BYTES)


def _read_part(answer: Any, name: str, what: str) -> dict[str, Any]:
    part = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(part, dict):
        raise StepError(f"{what}: the server's answer has no {name!r}")
    return part


def _check_path(text: str, name: str) -> str:
    parts = [part for part in text.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts):
        raise StepError(f"{name}: {text!r} is not a valid path; it must not be empty or have the parts . and ..")
    return "/".join(parts)
