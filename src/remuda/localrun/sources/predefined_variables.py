"""Computes predefined CI variables for a local folder: of its project, commit, tag, user and merge request. The URL of
the remote `origin` gives the server and the project's path; ids that only a server knows are 1. Invariant: credentials
in a remote's URL never get into a variable."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.localrun.sources.repository import Repository
from remuda.pipeline import predefined_variables

NOWHERE = "http://localhost"
"""The server of a project without an `origin`."""
NUMBER = 1
"""The id of the project and the number of its merge request."""

# One letter before the colon is a drive, not a host.
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s@]{2,}):(?P<path>\S+)")
PROJECT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")
"""The path of a project: at least a group and a name."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of a project's server, without a slash at its end, and the project's path there."""

    path: str
    server: str = NOWHERE

    @property
    def url(self) -> str:
        return f"{self.server}/{self.path}"


def address_of(repository: Repository | None, folder: Path) -> Address:
    """Return server and path of the remote `origin`; without it, a project on localhost with the folder's name."""
    origin = repository.origin() if repository else ""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name).strip("-._").removesuffix(".git") or "project"
    return read_address(origin) or Address(path=f"root/{name}")


def read_address(origin: str) -> Address | None:
    """Parse a remote's URL; None for a local path, or if the URL has no group and project."""
    if "://" in origin:
        try:
            parts = urlsplit(origin)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        scheme, path = parts.scheme, parts.path
        if scheme not in ("http", "https", "ssh", "git", "git+ssh"):
            return None
        is_web = scheme in ("http", "https")
        server = f"{scheme}://{host}:{port}" if is_web and port else f"{scheme if is_web else 'https'}://{host}"
    elif match := _SCP.fullmatch(origin):
        host, path = match["host"], match["path"]
        server = f"https://{host}"
    else:
        return None
    path = path.strip("/").removesuffix(".git")
    return Address(server=server, path=path) if host and PROJECT.fullmatch(path) else None


def of_project(address: Address) -> dict[str, str]:
    """Return the CI_PROJECT_*, CI_SERVER_* and CI_PAGES_* variables of a project."""
    title = address.path.rpartition("/")[2]
    own = predefined_variables.of_project(path=address.path, url=address.url, number=NUMBER, title=title)
    proxy = predefined_variables.of_image_proxy(predefined_variables.IMAGE_PROXY)
    pages = predefined_variables.of_pages(predefined_variables.PAGES_DOMAIN, path=address.path, server=address.server)
    return {**own, **predefined_variables.of_server(address.server), **proxy, **pages}


def of_commit(repository: Repository | None) -> dict[str, str]:
    """Return the CI_COMMIT_* variables of HEAD; an empty dict if there are no commits."""
    form = "--format=%H%x00%an <%ae>%x00%cI%x00%B"
    entry = repository.ask("log", "-1", "--no-show-signature", "--encoding=UTF-8", form, "HEAD") if repository else None
    if entry is None:
        return {}
    sha, author, timestamp, message = entry.decode(errors="replace").split("\0", 3)
    variables = predefined_variables.of_commit(message=message, author=author, timestamp=timestamp)
    return {"CI_COMMIT_SHA": sha, **variables}


def of_tag(repository: Repository | None, tag: str) -> dict[str, str]:
    """Return CI_COMMIT_TAG_MESSAGE; an empty dict if the tag does not exist or is not annotated."""
    place = f"refs/tags/{tag}"
    kind, _, message = (
        repository.answer("for-each-ref", "--format=%(objecttype) %(contents)", place) if repository else ""
    ).partition(" ")
    return predefined_variables.of_tag(message) if kind == "tag" else {}


def of_user(repository: Repository | None) -> dict[str, str]:
    """Return the GITLAB_USER_* variables, from git's user.name and user.email."""
    settings = repository.settings("user.name", "user.email") if repository else {}
    names = {"user.name": "GITLAB_USER_NAME", "user.email": "GITLAB_USER_EMAIL"}
    user = {names[key]: value for key, value in settings.items()}
    login = settings.get("user.email", "").partition("@")[0]
    return {**user, "GITLAB_USER_LOGIN": login} if login else user


def of_merge_request(
    address: Address, *, source: str, target: str, default_branch: str, base: str, title: str
) -> dict[str, str]:
    """Return the CI_MERGE_REQUEST_* variables. `base`: the merge base of the branches `source` and `target`."""
    return predefined_variables.of_merge_request(
        iid=NUMBER,
        project=of_project(address),
        source=source,
        target=target,
        default_branch=default_branch,
        base_sha=base,
        title=title,
    )
