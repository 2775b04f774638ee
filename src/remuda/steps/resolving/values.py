"""The result of resolving a reference, and normalized addresses of repositories and images.

The `reference` of a resolved step identifies one definition file in one unchangeable package (except for a local step
outside of any package). By comparing it, a step that calls itself is found. `pinned` is a reference that always
resolves to the same step."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from remuda.lib.dataclass import dataclass
from remuda.steps.language.values import Reference, ReferenceKind
from remuda.steps.resolving.errors import ResolveError

LARGEST_BYTES, MOST_FILES = 1024**3, 100_000
"""Limits of a step package."""
_PLAIN = "~:@!$&'()*+,;=-._"
"""Characters that are not escaped in a path."""
_PORTS = {"http": ":80", "https": ":443"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    reference: str
    """Canonical and without credentials: `builtin://checkout@1.0.0`, `https://host/project@COMMIT dir/func.yml`,
    `registry/repository@sha256:… dir/func.yml`, or the path of the definition file."""
    kind: ReferenceKind
    digest: str
    """Of all files of the package (`tree`); of a local step outside of any package: of its definition file."""
    folder: Path
    """The folder of the definition file: func_dir."""
    root: Path | None
    """Local references of this step must stay in here; None: they may lead anywhere."""
    file: str
    text: str
    """Content of the definition file."""
    pinned: Reference
    """The same step forever: by commit, digest, whole version, absolute path."""
    commit: str | None = None
    version: str | None = None
    """builtin: its version; git: the tag that was asked for; OCI: the tag."""
    real: str = ""
    """Of a local step: the path of its definition file without links."""
    remark: str = ""
    """A warning for the user: the server was away, and the cache was used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageOrigin:
    """Where the package of a step was fetched from; the values are those of `Resolved`."""

    kind: ReferenceKind
    reference: str
    digest: str
    commit: str | None = None
    version: str | None = None


def is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))


def git_address(url: str) -> tuple[SplitResult, str]:
    """Split a URL into normalized address, which policies match, and credentials. Raises ResolveError if invalid."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    userinfo, _, host = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not host:
        raise ResolveError(
            f"{parts._replace(netloc=host).geturl()!r} is not the address of a git repository; "
            "write host/path or https://host/path"
        )
    names = [unquote(part) for part in parts.path.split("/") if part]
    if any(name in (".", "..") or "/" in name for name in names):
        raise ResolveError(f"{host}{parts.path}: the path of a repository must not contain . or .. as a part")
    path = "".join(f"/{quote(name, safe=_PLAIN)}" for name in names)
    host = host.lower().removesuffix(_PORTS[parts.scheme]).removesuffix(".")
    return SplitResult(parts.scheme, host, path, "", ""), userinfo


def image_address(reference: Reference) -> Reference:
    """Return the reference with its registry in lower case. Raises ResolveError if a name part is empty, . or .."""
    if any(part in ("", ".", "..") for part in reference.repository.split("/")):
        raise ResolveError(
            f"{describe(reference)}: the name of a repository must not have parts that are empty, . or .."
        )
    return replace(reference, registry=reference.registry.lower())


def describe(reference: Reference) -> str:
    """Return a reference as text for messages, without credentials."""
    match reference.kind:
        case ReferenceKind.GIT:
            parts = urlsplit(reference.url if "://" in reference.url else f"https://{reference.url}")
            url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
            return f"{url}@{reference.version}"
        case ReferenceKind.OCI:
            separator = "@" if ":" in reference.tag else ":"
            return f"{reference.registry}/{reference.repository}{separator}{reference.tag}"
        case ReferenceKind.BUILTIN:
            return f"builtin://{reference.path}" + (f"@{reference.version}" if reference.version else "")
        case _:
            return reference.text
