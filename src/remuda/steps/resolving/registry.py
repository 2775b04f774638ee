"""A client for image registries (OCI distribution API): manifests and blobs of one repository.

Credentials come from DOCKER_AUTH_CONFIG, else from docker's own config.json, else from the job's registry variables;
they are sent to the registry and its token server only, never over plain HTTP unless the registry is on this machine.
Blobs, and manifests that are requested by digest, are checked against their digest. Calls block, so callers use
threads; they set the event `stop` to end a download whose result is no longer needed."""

import base64
import hashlib
import ipaddress
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from remuda.steps.resolving.errors import ResolveError, TemporaryResolveError, trust_error
from remuda.steps.resolving.retrying import PROXIES
from remuda.steps.resolving.values import is_digest

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
TIMEOUT_SECONDS = 30
LARGEST_MANIFEST_BYTES = 4 * 1024 * 1024
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_CHUNK = 256 * 1024
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


def is_local(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def credentials(host: str, repository: str, env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return user name and password for a repository from `env`, or None. The longest matching address counts."""
    address = f"{host}/{repository}"
    for text in _configurations(env):
        try:
            auths = json.loads(text).get("auths") or {}
            fitting = {_plain(key): value for key, value in auths.items() if _fits(_plain(key), address)}
            for _, value in sorted(fitting.items(), key=lambda item: -len(item[0])):
                if value.get("auth"):
                    name, _, password = base64.b64decode(value["auth"], validate=True).decode().partition(":")
                    return name, password
                if value.get("username"):
                    return str(value["username"]), str(value.get("password", ""))
        except (ValueError, AttributeError, TypeError, RecursionError):
            continue
    if host == env.get("CI_REGISTRY") and env.get("CI_REGISTRY_PASSWORD"):
        return env.get("CI_REGISTRY_USER", ""), env["CI_REGISTRY_PASSWORD"]
    return None


def _configurations(env: Mapping[str, str]) -> list[str]:
    texts = [env.get("DOCKER_AUTH_CONFIG", "")]
    folder = env.get("DOCKER_CONFIG") or (f"{env['HOME']}/.docker" if env.get("HOME") else "")
    if folder:
        with suppress(OSError, UnicodeError):
            texts.append(Path(folder, "config.json").read_text())
    return [text for text in texts if text]


def _plain(key: str) -> str:
    key = key.partition("://")[2] or key
    return re.sub(r"/v[12]/?$|/$", "", key)


def _fits(key: str, address: str) -> bool:
    hub = address.split("/")[0] in _DOCKER_HUB
    return address == key or address.startswith(f"{key}/") or (hub and key in _DOCKER_HUB)


class Registry:
    def __init__(self, host: str, repository: str, env: Mapping[str, str], stop: threading.Event) -> None:
        self._is_hub = host in _DOCKER_HUB
        self._host = "registry-1.docker.io" if self._is_hub else host
        self._repository = f"library/{repository}" if self._is_hub and "/" not in repository else repository
        self.name = f"{host}/{repository}"
        self._scheme = "http" if is_local(host) else "https"
        self._credentials = credentials(host, self._repository, env)
        self._authorization = ""
        self._stop = stop
        proxies = {name.removesuffix("_proxy"): env.get(name) or env.get(name.upper()) or "" for name in PROXIES}
        no = proxies.pop("no")
        bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]
        is_direct = is_local(host) or bypass(self._host, {"no": no})
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({} if is_direct else {key: value for key, value in proxies.items() if value}),
            urllib.request.HTTPSHandler(context=self._tls(env)),
        )

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        """Fetch the manifest of a tag or digest. Returns the manifest and its digest."""
        accept = ", ".join((*INDEXES, *MANIFESTS))
        with self._get(f"manifests/{reference}", accept) as answer:
            data = answer.read(LARGEST_MANIFEST_BYTES + 1)
        if len(data) > LARGEST_MANIFEST_BYTES:
            raise ResolveError(f"{self.name}: the manifest has more than {LARGEST_MANIFEST_BYTES} bytes")
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if is_digest(reference):
            kind = reference.partition(":")[0]
            if f"{kind}:{hashlib.new(kind, data).hexdigest()}" != reference:
                raise _digest_error(self.name, reference)
            digest = reference
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise ResolveError(f"{self.name}: the registry's answer for {reference} is not a manifest")
        return document, digest

    def blob(self, digest: str, size: int, target: Path) -> None:
        """Download a blob to the file `target`. Raises ResolveError if its size or digest differs."""
        if not is_digest(digest):
            raise ResolveError(f"{self.name}: {digest!r} is not a digest")
        hasher = hashlib.new(digest.partition(":")[0])
        missing = size
        with self._get(f"blobs/{digest}", "*/*") as answer, target.open("wb") as file:
            try:
                while chunk := answer.read(min(_CHUNK, missing + 1)):
                    missing -= len(chunk)
                    if missing < 0 or self._stop.is_set():
                        break
                    hasher.update(chunk)
                    file.write(chunk)
            except (OSError, HTTPException) as error:
                raise TemporaryResolveError(f"{self.name}: the connection broke: {error}") from None
        if self._stop.is_set():
            raise TemporaryResolveError(f"{self.name}: stopped")
        if missing > 0:
            raise TemporaryResolveError(f"{self.name}: the connection ended {missing} bytes early")
        if missing < 0 or f"{digest.partition(':')[0]}:{hasher.hexdigest()}" != digest:
            raise _digest_error(self.name, digest)

    def _get(self, path: str, accept: str) -> HTTPResponse:
        url = f"{self._scheme}://{self._host}/v2/{self._repository}/{path}"
        try:
            return self._send(url, accept, self._authorization)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or not challenge:
                raise self._refusal(error, path) from None
        self._authorization = self._answer_to(challenge)
        try:
            return self._send(url, accept, self._authorization)
        except urllib.error.HTTPError as error:
            raise self._refusal(error, path) from None

    def _answer_to(self, challenge: str) -> str:
        """Return the Authorization header for the challenge of a 401 response. May ask the registry's token server."""
        kind, _, rest = challenge.partition(" ")
        basic = ""
        if self._credentials is not None:
            basic = f"Basic {base64.b64encode(':'.join(self._credentials).encode()).decode()}"
        if kind.lower() == "basic" and basic:
            return basic
        facts = dict(_CHALLENGE.findall(rest))
        realm = facts.get("realm", "")
        if kind.lower() != "bearer" or not realm:
            raise ResolveError(f"{self.name}: the registry asks for credentials; {_HINT}")
        scheme = urlsplit(realm).scheme
        if scheme not in ("http", "https"):
            raise ResolveError(f"{self.name}: the registry names an invalid token server, {realm!r}")
        if scheme != "https" and self._scheme == "https":
            raise ResolveError(f"{self.name}: the registry names a token server without TLS, {realm}; it is not used")
        query = {name: facts[name] for name in ("service", "scope") if name in facts}
        separator = "&" if "?" in realm else "?"
        try:
            with self._send(f"{realm}{separator}{urlencode(query)}", "application/json", basic) as answer:
                content = json.loads(answer.read(LARGEST_MANIFEST_BYTES))
            return f"Bearer {content.get('token') or content['access_token']}"
        except urllib.error.HTTPError as error:
            raise self._refusal(error, "") from None
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise ResolveError(f"{self.name}: the token server of the registry answers without a token") from None

    def _send(self, url: str, accept: str, authorization: str) -> HTTPResponse:
        request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "remuda-agent"})
        if authorization:
            # Not sent to the storage that the registry redirects to.
            request.add_unredirected_header("Authorization", authorization)
        try:
            answer: HTTPResponse = self._opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise trust_error(self._host, reason.verify_message) from None
            raise TemporaryResolveError(f"{self.name} cannot be reached: {reason}") from None
        return answer

    def _refusal(self, error: urllib.error.HTTPError, path: str) -> ResolveError:
        with error:
            answer = f"the registry answers {error.code} {error.reason}"
        if error.code in (401, 403):
            state = "does not accept the credentials" if self._credentials else "asks for credentials"
            return ResolveError(f"{self.name}: the registry {state} ({error.code} {error.reason}); {_HINT}")
        if error.code == 404:
            return ResolveError(f"{self.name} has no {path.replace('/', ' ')}: {answer}")
        if error.code in (408, 429) or error.code >= 500:
            after = error.headers.get("Retry-After", "")
            return TemporaryResolveError(
                f"{self.name}: {answer}", retry_after=float(after) if after.isascii() and after.isdigit() else None
            )
        return ResolveError(f"{self.name}: {answer}")

    def _tls(self, env: Mapping[str, str]) -> ssl.SSLContext:
        context = ssl.create_default_context()
        for name in ("SSL_CERT_FILE", "CI_SERVER_TLS_CA_FILE"):
            if file := env.get(name):
                try:
                    context.load_verify_locations(file)
                except (OSError, ssl.SSLError) as error:
                    raise trust_error(self._host, f"the file in {name} cannot be used: {error}") from None
        return context


_HINT = "set them in the variable DOCKER_AUTH_CONFIG, and check that they may read this repository"


def _digest_error(name: str, digest: str) -> ResolveError:
    return ResolveError(f"{name}: the registry's answer for {digest} has another digest and is not used")
