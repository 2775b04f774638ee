"""OpenID Connect providers for tests: a real one (the program oidc-provider-mock), and one that can forge its
answers."""

import base64
import hashlib
import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.support.cells.page_client import fetch
from tests.support.servers.http_server import PlainHandler, run_http_server

from remuda.testing.lab import free_port
from remuda.testing.waiting import wait_until

PROGRAM = Path(__file__).parents[3] / ".venv-peers" / "bin" / "oidc-provider-mock"


@contextmanager
def run_real_provider(folder: Path, *users: dict[str, Any]) -> Iterator[str]:
    """Run oidc-provider-mock with these users, each with its claims. Yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    claims = [argument for user in users for argument in ("--user-claims", json.dumps(user))]
    with (folder / "provider.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "--port", str(port), "--require-nonce", *claims],
            stdout=log,
            stderr=log,
            env={"AUTHLIB_INSECURE_TRANSPORT": "1"},
        )
        try:
            wait_until(lambda: _answers(url), "the provider answers", 30)
            yield url
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return fetch(f"{url}/.well-known/openid-configuration").status == 200
    except OSError:
        return False


Forge = Callable[[dict[str, Any]], str | None]


@dataclass
class ForgingProvider:
    """A provider that signs in everybody with `claims`. A test changes what it answers."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "u-1", "preferred_username": "ada", "name": "Ada"})
    change: dict[str, Any] = field(default_factory=dict)
    """Claims that replace those that would be right."""
    forge: Forge = lambda _: None
    """Returns the ID token for these claims; None: a right one."""
    userinfo: dict[str, Any] | None = None
    configuration: dict[str, Any] = field(default_factory=dict)
    """Replaces parts of the configuration."""
    status: int = 200
    """Status of all answers."""
    silent: bool = False
    answers_issuer: bool = True
    keys: dict[str, rsa.RSAPrivateKey] = field(default_factory=dict)
    signs_with: str = "k1"
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add_key("k1")

    def add_key(self, kid: str) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.signs_with = kid

    def sign(self, claims: dict[str, Any], key: Any = None, algorithm: str = "RS256") -> str:
        return jwt.encode(claims, key or self.keys[self.signs_with], algorithm, headers={"kid": self.signs_with})

    def authorize(self, address: str) -> str:
        """What a browser does there: the address of the cell to which a signed-in user is sent back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.codes[code] = query
        answer = {"code": code, "state": query["state"]} | ({"iss": self.url} if self.answers_issuer else {})
        return f"{urlsplit(query['redirect_uri']).path}?{urlencode(answer)}"


class _Handler(PlainHandler):
    state: ForgingProvider

    def respond(self) -> None:
        state, body = self.state, self.read_body()
        path = urlsplit(self.path).path
        state.requests.append(path)
        if state.silent:
            self.close_connection = True
            return
        status, answer = state.status, dict[str, Any](error="server_error")
        if status == 200 and path == "/.well-known/openid-configuration":
            answer = self._configuration()
        elif status == 200 and path == "/keys":
            answer = {"keys": [_public(kid, key) for kid, key in state.keys.items()]}
        elif status == 200 and path == "/token":
            status, answer = self._exchange(dict(parse_qsl(body.decode())))
        elif status == 200 and path == "/userinfo" and state.userinfo is not None:
            assert self.headers["Authorization"] == "Bearer access"
            answer = state.userinfo
        self.answer(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _configuration(self) -> dict[str, Any]:
        url = self.state.url
        return {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize?prompt=login",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/keys",
            "authorization_response_iss_parameter_supported": True,
            **({"userinfo_endpoint": f"{url}/userinfo"} if self.state.userinfo is not None else {}),
            **self.state.configuration,
        }

    def _exchange(self, form: dict[str, str]) -> tuple[int, dict[str, str]]:
        state = self.state
        query = state.codes.pop(form["code"], None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (
            query is None
            or query["code_challenge"] != challenge.decode()
            or query["redirect_uri"] != form["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        if self.headers["Authorization"] != f"Basic {base64.b64encode(b'cell:s%2Fcret').decode()}":
            return 401, {"error": "invalid_client"}
        now = int(time.time())
        times = {"iat": now, "exp": now + 300}
        claims = {"iss": state.url, "aud": "cell", "nonce": query["nonce"], **times, **state.claims, **state.change}
        return 200, {
            "id_token": state.forge(claims) or state.sign(claims),
            "access_token": "access",
            "token_type": "Bearer",
        }


def _public(kid: str, key: rsa.RSAPrivateKey) -> dict[str, Any]:
    listed: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**listed, "kid": kid, "use": "sig"}


@contextmanager
def run_forging_provider() -> Iterator[ForgingProvider]:
    state = ForgingProvider()
    with run_http_server(type("Handler", (_Handler,), {"state": state})) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
