"""Chooses the registry credentials for pulling an image. No I/O. In order of priority: the job's variable
DOCKER_AUTH_CONFIG, credentials that the server sent with the job, Docker logins of the agent's user. Within a source,
the credential with the longest matching prefix of the image's name counts."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.lib.dataclass import dataclass

HUB = "docker.io"
_HUB_NAMES = ("index.docker.io", "registry-1.docker.io", "docker.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A registry login. `place` is the host of the registry, optionally with a path prefix."""

    place: str
    username: str
    password: str
    token: str = ""
    """An identity token in place of a password."""

    def header(self) -> str:
        host = self.place.partition("/")[0]
        login = {"serveraddress": "https://index.docker.io/v1/" if host == HUB else host}
        login |= {"identitytoken": self.token} if self.token else {"username": self.username, "password": self.password}
        return base64.urlsafe_b64encode(json.dumps(login).encode()).decode()


def split_image(name: str) -> tuple[str, str]:
    """Split an image reference into the name and its digest or, without one, its tag; '' if it has neither."""
    bare, at, digest = name.partition("@")
    if at:
        tagless, colon, tag = bare.rpartition(":")
        return (tagless if colon and "/" not in tag else bare), digest
    tagless, colon, tag = name.rpartition(":")
    return (tagless, tag) if colon and "/" not in tag else (name, "")


def full_name(image: str) -> str:
    """Return registry host and path of an image, without tag and digest: `alpine` is in `library/` of Docker Hub."""
    bare, _ = split_image(image)
    first, slash, _ = bare.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return _normalize_place(bare)
    return f"{HUB}/{bare}" if slash else f"{HUB}/library/{bare}"


def choose(image: str, *sources: Iterable[Credential]) -> Credential | None:
    """Return the credential for an image; None if no source has one. `sources`: lists of credentials, the one with the
    highest priority first."""
    name = full_name(image)
    for source in sources:
        matches = [login for login in source if name == login.place or name.startswith(f"{login.place}/")]
        if matches:
            return max(matches, key=lambda login: len(login.place))
    return None


def read_config(text: str) -> list[Credential]:
    """Parse a Docker configuration, `{"auths": {HOST: {"auth": BASE64}}}`. Raises ValueError if it is invalid."""
    document = json.loads(text)
    auths = document.get("auths", {}) if isinstance(document, dict) else None
    if not isinstance(auths, dict):
        raise ValueError("it must be a JSON object with the object auths")
    credentials = []
    for place, entry in auths.items():
        if not isinstance(entry, dict):
            raise ValueError(f"auths.{place} is not a JSON object")
        username, password = _read_login(entry, place)
        token = str(entry.get("identitytoken") or "")
        if username or token:
            credentials.append(
                Credential(place=_normalize_place(place), username=username, password=password, token=token)
            )
    return credentials


def from_payload(entries: Iterable[Mapping[str, Any]]) -> list[Credential]:
    """Convert the credentials that the server sent with a job: `{"type": "registry", "url", "username", "password"}`.
    Entries of other types are left out."""
    return [
        Credential(
            place=_normalize_place(str(entry.get("url") or "")),
            username=str(entry.get("username") or ""),
            password=str(entry.get("password") or ""),
        )
        for entry in entries
        if entry.get("type", "registry") == "registry" and entry.get("url")
    ]


def _read_login(entry: Mapping[str, Any], place: str) -> tuple[str, str]:
    if not entry.get("auth"):
        return str(entry.get("username") or ""), str(entry.get("password") or "")
    try:
        name, colon, password = base64.b64decode(str(entry["auth"]), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        colon = ""
    if not colon:
        raise ValueError(f"auths.{place}.auth is not the base64 of NAME:PASSWORD")
    return name, password.rstrip("\0")


def _normalize_place(text: str) -> str:
    """Normalize the address of a registry: remove scheme and API path, and use one name for Docker Hub."""
    bare = text.partition("://")[2] or text
    host, _, path = bare.strip("/").partition("/")
    path = "" if path in ("v1", "v2") else path
    host = HUB if host in _HUB_NAMES else host
    return f"{host}/{path}" if path else host
