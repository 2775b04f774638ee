"""Parses references to steps, the string or mapping of a `step:` key. No I/O; `resolving` fetches what they refer to.

The kinds are tried in GitLab's order: dynamic (with an expression, parsed again after evaluation), local, builtin, then
git or OCI, whose distinction GitLab does not document. Here, a blank with a path after it means OCI; else an `@` after
the host means git, unless a digest follows; else a `:` in the last part of the path means OCI."""

import re
from collections.abc import Mapping
from typing import Any

from remuda.steps.errors import DefinitionError
from remuda.steps.language.escaping import OPENER
from remuda.steps.language.values import Place, Reference, ReferenceKind

LONG_FORMS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "git": (frozenset({"url", "rev"}), frozenset({"dir", "file"})),
    "oci": (frozenset({"registry", "repository", "tag"}), frozenset({"dir", "file"})),
}
"""The fields that each form needs and may have."""

SHORT_FORM_FOLDER = "steps"
"""The folder of the packages of a repository, in the short form of a git reference."""

_BUILTIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:/[A-Za-z0-9_-]+)*")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def parse_reference(written: str | Mapping[str, Any], place: Place | str) -> Reference:
    """Parse a reference to a step. Raises DefinitionError, which names the `place`, if it is invalid."""
    try:
        return _short(written) if isinstance(written, str) else _long(written)
    except _BadReferenceError as error:
        raise DefinitionError(f"{place}: {error}") from None


class _BadReferenceError(ValueError):
    """Raised for an invalid reference; `parse_reference` converts it to a DefinitionError with the place."""


def _short(text: str) -> Reference:
    if not text.strip():
        raise _BadReferenceError("the reference is empty; write a path like ./folder, or url@revision")
    if OPENER in text:
        return Reference(kind=ReferenceKind.DYNAMIC, text=text)
    if text.startswith((".", "/")):
        folder, file = _split_file(text)
        return Reference(kind=ReferenceKind.LOCAL, text=text, path=folder, file=file)
    for scheme in ("builtin://", "dist://"):
        if text.startswith(scheme):
            return _builtin(text, text.removeprefix(scheme))
    first, _, inside = text.partition(" ")
    if inside.strip():
        return _oci(text, first, inside.strip())
    text = text.strip()
    rest = text[match.end() :] if (match := _SCHEME.match(text)) else text
    host, slash, path = rest.partition("/")
    if "@" in path or ("@" in host and not slash):
        if _DIGEST.fullmatch(rest.rpartition("@")[2]):
            return _oci(text, text, "")
        return _git(text)
    if ":" in path.rpartition("/")[2]:
        return _oci(text, text, "")
    raise _BadReferenceError(
        f'expecting url@rev. got "{without_credentials(text)}"; a folder of this repository begins with ./'
    )


def _builtin(text: str, rest: str) -> Reference:
    name, at, version = rest.partition("@")
    if not _BUILTIN.fullmatch(name):
        raise _BadReferenceError(f'"{name}" is not the name of a builtin step; write for example builtin://checkout')
    if at and not _VERSION.fullmatch(version):
        raise _BadReferenceError(f'"{version}" is not a version; write for example @1, @1.2 or @1.2.3')
    return Reference(kind=ReferenceKind.BUILTIN, text=text, path=name, version=version)


def _git(text: str) -> Reference:
    url, _, revision = text.rpartition("@")
    url, _, inside = url.partition("/-/")
    folder, file = _split_file(_inside(inside)) if inside else ("", "")
    folder = f"{SHORT_FORM_FOLDER}/{folder}" if folder not in ("", ".") else SHORT_FORM_FOLDER
    return _git_reference(text, url, revision, folder, file)


def _git_reference(text: str, url: str, revision: str, folder: str, file: str) -> Reference:
    if not revision or revision.startswith("-") or any(character.isspace() for character in revision):
        raise _BadReferenceError(f'"{revision}" is not a revision; name a tag, a branch or a commit')
    if any(character.isspace() for character in url) and OPENER not in url:
        raise _BadReferenceError("the URL contains spaces; remove them")
    scheme = _SCHEME.match(url)
    if scheme is None:
        url = f"https://{url}"
    elif scheme[1].lower() not in ("http", "https"):
        raise _BadReferenceError(
            f"steps are fetched from http:// and https:// URLs only, not {scheme[1]}://; a path begins with . or /"
        )
    return Reference(kind=ReferenceKind.GIT, text=text, url=url, version=revision, path=folder, file=file)


def _oci(text: str, image: str, inside: str) -> Reference:
    name, at, digest = image.rpartition("@")
    if not at or not _DIGEST.fullmatch(digest):
        name, digest = image, ""
    name, tag = _split_tag(name)
    registry, _, repository = name.partition("/")
    if "@" in registry:
        raise _BadReferenceError("an OCI reference must not contain credentials; use DOCKER_AUTH_CONFIG")
    folder, file = _split_file(_inside(inside)) if inside else ("", "")
    return _oci_reference(text, registry, repository, digest or tag, folder, file)


def _split_tag(name: str) -> tuple[str, str]:
    """Split an OCI image name into name and tag (may be empty). A colon before the last slash belongs to a port."""
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{head}{slash}{last}", tag


def _oci_reference(text: str, registry: str, repository: str, tag: str, folder: str, file: str) -> Reference:
    if not _fits(_REGISTRY, registry) or not _fits(_REPOSITORY, repository):
        raise _BadReferenceError("an OCI reference is registry/repository:tag, and optionally a space and a path")
    if not _fits(_TAG, tag) and not _DIGEST.fullmatch(tag):
        raise _BadReferenceError(f'"{tag}" is neither a tag nor a digest (sha256:...) of an OCI reference')
    return Reference(
        kind=ReferenceKind.OCI,
        text=text,
        registry=registry,
        repository=repository,
        tag=tag,
        path="" if folder == "." else folder,
        file=file,
    )


def _fits(pattern: re.Pattern[str], text: str) -> bool:
    """True if the text matches the pattern, or contains an expression: then it is checked after the evaluation."""
    return OPENER in text or pattern.fullmatch(text) is not None


def _long(written: Mapping[str, Any]) -> Reference:
    kind = next(iter(written), "")
    if len(written) != 1 or kind not in LONG_FORMS:
        raise _BadReferenceError('a string, or a mapping with exactly one of "git" and "oci" is needed')
    fields = written[kind]
    needed, allowed = LONG_FORMS[kind]
    if not isinstance(fields, Mapping) or not all(isinstance(value, str) for value in fields.values()):
        raise _BadReferenceError(f'"{kind}" needs a mapping of strings')
    for name in sorted(needed):
        if not fields.get(name):
            raise _BadReferenceError(f'"{kind}" needs "{name}"')
    if unknown := fields.keys() - needed - allowed:
        raise _BadReferenceError(f'"{kind}" has no field "{min(unknown)}"')
    folder, file = _inside(fields.get("dir", "")), _file_name(fields.get("file", ""))
    if kind == "oci":
        text = f"{fields['registry']}/{fields['repository']}:{fields['tag']}"
        return _oci_reference(text, fields["registry"], fields["repository"], fields["tag"], folder, file)
    if OPENER in fields["rev"]:
        raise _BadReferenceError('"rev" cannot contain an expression; "url" can')
    return _git_reference(f"{fields['url']}@{fields['rev']}", fields["url"], fields["rev"], folder, file)


def without_credentials(url: str) -> str:
    """Remove user name and password from a URL, for messages and results."""
    scheme = match[0] if (match := _SCHEME.match(url)) else ""
    host, slash, path = url[len(scheme) :].partition("/")
    if slash and "@" in host:
        host = host.rpartition("@")[2]
    return f"{scheme}{host}{slash}{path}"


def _split_file(path: str) -> tuple[str, str]:
    """Split a path into its folder and the name of a definition file, which is empty unless the path ends in .yml."""
    path = re.sub("/{2,}", "/", path)
    folder, slash, last = path.rpartition("/")
    if not last.endswith(".yml"):
        return path, ""
    return folder or ("/" if slash else "."), last


def _file_name(name: str) -> str:
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise _BadReferenceError(f'"file" is a name without a folder, not "{name}"; the folder is "dir"')
    return name


def _inside(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\\" in path or "\0" in path:
        raise _BadReferenceError(f'"{path}" leaves the package; write a path from its root, without ".."')
    return "/".join(parts)
