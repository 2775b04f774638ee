"""Pushes images to a repository of a registry (OCI distribution API).

Credentials come from DOCKER_AUTH_CONFIG, else from CI_REGISTRY_USER and CI_REGISTRY_PASSWORD if the registry is
CI_REGISTRY. They are sent to the registry and its token server only, and over plain HTTP only to this machine."""

import base64
import http.client
import ipaddress
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode, urljoin, urlsplit

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.transfer import (
    AGENT,
    ANSWER_SECONDS,
    HttpError,
    convert_answer,
    is_address,
    read_some,
    request,
    send_once,
    with_retries,
)
from remuda.stdsteps.engine.registry_auth import Credential, choose, read_config

_REPOSITORY = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?/[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_LARGEST_ANSWER_BYTES = 4 * 1024 * 1024
_MOST_PAGES = 100
_HINT = "set DOCKER_AUTH_CONFIG, and check that this login may write to the repository"

Body = Callable[[], Iterable[bytes]]


class Registry:
    """One repository of a registry. Transient errors are retried; raises StepError for others."""

    def __init__(self, repository: str, env: Mapping[str, str]) -> None:
        """`repository`: host and path, such as registry.example.com/group/function."""
        if not _REPOSITORY.fullmatch(repository):
            raise StepError(
                f"to_repository: {repository[:200]!r} must be a registry and a path in lower case without a tag, such "
                "as registry.example.com/group/function"
            )
        self.name = repository
        host, _, path = repository.partition("/")
        self._root = f"{'http' if is_local(host) else 'https'}://{host}/v2/{path}/"
        self._credential = find_credential(repository, env)
        self._authorization = ""

    def tags(self) -> list[str]:
        """Return all tags of the repository; empty if it does not exist yet."""
        tags: list[str] = []
        path = "tags/list"
        for _ in range(_MOST_PAGES):
            status, headers, body = self._call("GET", path, also=(404,))
            if status == 404:
                break
            found = _parse(body).get("tags")
            tags += [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
            following = re.match(r"<([^>]+)>; *rel=\"?next", headers.get("Link", ""))
            if following is None:
                break
            path = urljoin(urljoin(self._root, "tags/list"), following[1])
        return tags

    def digest_of(self, tag: str, accept: str) -> str:
        """Return the digest of the image with a tag; empty if there is none."""
        status, headers, _ = self._call("HEAD", f"manifests/{tag}", {"Accept": accept}, also=(404,))
        return "" if status == 404 else headers.get("Docker-Content-Digest", "")

    def push_blob(self, digest: str, size: int, body: Body) -> bool:
        """Upload a blob; returns False if the repository has it already."""
        status, _, _ = self._call("HEAD", f"blobs/{digest}", also=(404,))
        if status != 404:
            return False

        def upload(_: int) -> None:
            headers = self._attempt("POST", "blobs/uploads/", {"Content-Length": "0"}, None, ())[1]
            place = urljoin(urljoin(self._root, "blobs/uploads/"), headers.get("Location", ""))
            url = f"{place}{'&' if '?' in place else '?'}{urlencode({'digest': digest})}"
            fields = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            self._attempt("PUT", url, fields, body, ())

        with_retries(f"uploading {digest[:19]} to {self.name}", upload)
        return True

    def push_manifest(self, reference: str, media_type: str, data: bytes) -> None:
        fields = {"Content-Type": media_type, "Content-Length": str(len(data))}
        self._call("PUT", f"manifests/{reference}", fields, lambda: (data,))

    def _call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        *,
        also: tuple[int, ...] = (),
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        what = f"{method} {path.partition('?')[0][-100:]} of {self.name}"
        return with_retries(what, lambda _: self._attempt(method, path, headers or {}, body, also))

    def _attempt(
        self, method: str, path: str, headers: Mapping[str, str], body: Body | None, also: tuple[int, ...]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request, after a challenge again with credentials. `also`: statuses that are no errors. Raises
        HttpError for others."""
        url, is_ours = find_place(self._root, path)
        for is_last in (False, True):
            fields = {"User-Agent": AGENT, "Connection": "close", **headers}
            if self._authorization and is_ours:
                fields["Authorization"] = self._authorization
            answer = send_once(method, url, fields, body() if body else None, ANSWER_SECONDS)
            challenge = answer.headers.get("WWW-Authenticate", "")
            if answer.status == 401 and challenge and is_ours and not is_last:
                answer.close()
                self._authorization = self._answer_challenge(challenge)
                continue
            if answer.status in (401, 403):
                answer.close()
                state = "does not accept the login" if self._credential else "asks for a login"
                raise StepError(f"{self.name}: the registry {state} ({answer.status} {answer.reason}); {_HINT}")
            if not 200 <= answer.status < 300 and answer.status not in also:
                raise convert_answer(answer)
            with answer:
                return answer.status, answer.headers, read_some(answer, _LARGEST_ANSWER_BYTES)
        raise AssertionError("the loop returns or raises")

    def _answer_challenge(self, challenge: str) -> str:
        """Return the Authorization header for a challenge. May request a token from the registry's token server."""
        kind, _, rest = challenge.partition(" ")
        basic = ""
        if self._credential is not None:
            login = f"{self._credential.username}:{self._credential.password}".encode()
            basic = f"Basic {base64.b64encode(login).decode()}"
        if kind.lower() == "basic" and basic:
            return basic
        facts = dict(_CHALLENGE.findall(rest))
        realm = facts.get("realm", "")
        is_safe = urlsplit(realm).scheme == "https" or is_local(urlsplit(realm).netloc)
        if kind.lower() != "bearer" or not is_safe:
            raise StepError(f"{self.name}: the registry asks for a login; {_HINT}")
        query = urlencode({name: facts[name] for name in ("service", "scope") if name in facts})
        url = f"{realm}{'&' if '?' in realm else '?'}{query}"
        try:
            with request("GET", url, headers={"Authorization": basic} if basic else {}, redirects=0) as answer:
                content = _parse(read_some(answer, _LARGEST_ANSWER_BYTES))
        except HttpError as error:
            if error.status in (401, 403):
                raise StepError(f"{self.name}: the token server refuses the login: {error}; {_HINT}") from None
            raise
        token = content.get("token") or content.get("access_token")
        if not isinstance(token, str):
            raise StepError(f"{self.name}: the registry's token server answers without a token")
        return f"Bearer {token}"


def find_place(root: str, path: str) -> tuple[str, bool]:
    """Return the URL for a path or URL that the registry named, and whether it is at the registry itself, which alone
    gets the login. Raises StepError if the URL is invalid, or has no TLS although that of the registry, `root`, has."""
    url = urljoin(root, path)
    base = urlsplit(root)
    if not is_address(url) or (base.scheme == "https" and urlsplit(url).scheme != "https"):
        shown = url.partition("?")[0].rpartition("@")[2][:200]
        raise StepError(f"{base.netloc}: the registry names {shown!r}, which is not an https address; check its setup")
    target = urlsplit(url)
    return url, (target.scheme, target.netloc) == (base.scheme, base.netloc)


def is_local(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def find_credential(repository: str, env: Mapping[str, str] = os.environ) -> Credential | None:
    """Return the login for a repository from the job's variables. Raises StepError if DOCKER_AUTH_CONFIG is invalid."""
    sources: list[list[Credential]] = []
    if text := env.get("DOCKER_AUTH_CONFIG"):
        try:
            sources.append(read_config(text))
        except ValueError as error:
            raise StepError(f"variable DOCKER_AUTH_CONFIG: {error}") from None
    registry, password = env.get("CI_REGISTRY"), env.get("CI_REGISTRY_PASSWORD")
    if registry and password:
        user = env.get("CI_REGISTRY_USER", "")
        sources.append([Credential(place=registry, username=user, password=password)])
    return choose(repository, *sources)


def _parse(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}
