"""Fetches other projects for `include:project` and `include:component` from a git server, with the user's credentials
and permission, into bare repositories in the user's cache folder. Branches and tags are fetched with their whole
history, so that the cell of a run gets commits with the ids that a server would have. If a server does not answer, its
copy is used with a note. Invariant: contacts no server without a permission for the project."""

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote as quote_path
from urllib.parse import urlsplit

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.predefined_variables import PROJECT, read_address
from remuda.pipeline import SourceProblem
from remuda.pipeline.errors import quote
from remuda.pipeline.include.allowed_addresses import Prefix, read_prefix

if TYPE_CHECKING:
    from remuda.localrun.sources.repository import Repository

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
_FETCHED = "remuda-fetched"
"""A file in the repository whose time is that of the last successful fetch."""
_REFSPECS = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", "+HEAD:refs/remuda/HEAD")


class Server(NamedTuple):
    """A git server: its host and port as in CI_SERVER_FQDN, and what precedes a project's path in its URL for git."""

    host: str
    base: str

    def url(self, project: str) -> str:
        return f"{self.base}{project}.git"


def read_server(text: str) -> Server | None:
    """Parse the value of `--server`; None if it is empty. Raises BadInputError if it is no address."""
    if not text:
        return None
    base = text if text.endswith(("/", ":")) else f"{text}/" if "://" in text else f"{text}:"
    # An address is valid if a project below it has a valid one.
    address = read_address(f"{base}group/project.git")
    if address is None or text.startswith("-"):
        raise BadInputError(
            f"--server {text}: give an address like https://gitlab.example.com or git@gitlab.example.com"
        )
    return Server(host=_host_of(address.server), base=base)


def server_of_origin(repository: "Repository | None") -> Server | None:
    """Return the server of the remote `origin`, with the user name, port and transport of its URL."""
    origin = (repository.origin() if repository else "").strip("/")
    address = read_address(origin)
    if address is None:
        return None
    base = origin.removesuffix(".git").removesuffix(address.path)
    return Server(host=_host_of(address.server), base=base)


def _host_of(address: str) -> str:
    return urlsplit(address).netloc


def read_allowed_projects(entries: Sequence[str]) -> tuple[Prefix, ...]:
    """Parse the values of `--allow-fetch`. Raises BadInputError if one is invalid."""
    allowed = []
    for entry in entries:
        prefix = _prefix(entry.partition("://")[2] or entry)
        if prefix is None:
            raise BadInputError(f"--allow-fetch {entry}: give a host, or HOST/GROUP, or HOST/GROUP/PROJECT")
        allowed.append(prefix)
    return tuple(allowed)


def _is_project(text: str) -> bool:
    return PROJECT.fullmatch(text) is not None and not {".", ".."}.intersection(text.split("/"))


def _prefix(place: str) -> Prefix | None:
    return read_prefix(f"https://{place}")


class ProjectFetcher:
    """Fetches projects that are permitted by `--allow-fetch` or by an answer of the user, each of them once."""

    def __init__(self, server: Server | None, *, allowed: Sequence[Prefix] = ()) -> None:
        self._server = server
        self._allowed = allowed
        self._results: dict[tuple[str, str], Path | SourceProblem] = {}

    def fetch(
        self, project: str, host: str = "", *, is_enough: Callable[["Repository"], bool] | None = None
    ) -> Path | SourceProblem:
        """Return a bare repository with the branches and tags of a project. `host`: that of a component's address;
        empty: the known server. `is_enough`: says whether a copy has all that is needed; then it is used as it is."""
        server = self._server_for(host, project)
        if isinstance(server, SourceProblem):
            return server
        key = (server.host, project)
        if key not in self._results:
            if (problem := self._check(server, project)) is not None:
                self._results[key] = problem
            else:
                place = _cache_folder() / quote_path(server.host, safe="") / f"{quote_path(project, safe='')}.git"
                if is_enough is not None and (place / "HEAD").exists() and is_enough(_repository(place)):
                    return place
                self._results[key] = _update(place, server, project)
        return self._results[key]

    def _server_for(self, host: str, project: str) -> Server | SourceProblem:
        """Return the server with a component's host: the known one, or one over HTTPS."""
        if self._server is not None and host.lower() in (
            "",
            self._server.host.lower(),
            urlsplit(f"//{self._server.host}").hostname,
        ):
            return self._server
        if not host:
            return SourceProblem(
                reason=f"the project {quote(project)} is not here, and no remote `origin` names its server",
                suggestion=f"pass --project {project}=FOLDER with a clone of it, or --server with its address",
            )
        if not _HOST.fullmatch(host):
            return SourceProblem(reason=f"{quote(host)} is not a host", suggestion="correct the address")
        return Server(host=host, base=f"https://{host}/")

    def _check(self, server: Server, project: str) -> SourceProblem | None:
        """Return why the project may not be fetched; None if it may."""
        place = f"{server.host}/{project}"
        address = _prefix(place)
        if not _is_project(project) or address is None:
            return SourceProblem(reason=f"{quote(project)} is not the path of a project", suggestion="correct it")
        if any(prefix.covers(address) for prefix in self._allowed):
            return None
        from remuda.localrun.settings.answers import is_permitted
        from remuda.localrun.settings.places import user_file

        if is_permitted(f"Fetch {project} from {server.host}?", "allow-fetch", place):
            return None
        return SourceProblem(
            reason=f"the project {quote(project)} is not here, and fetching it from {server.host} is not allowed",
            suggestion=f'pass --allow-fetch {place}, or set allow-fetch = ["{place}"] in {user_file()}, or pass '
            f"--project {project}=FOLDER with a clone of it",
        )


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("remuda")) / "projects"


def _repository(place: Path) -> "Repository":
    from remuda.localrun.sources.repository import Repository

    return Repository(place, is_part=False)


def _update(place: Path, server: Server, project: str) -> Path | SourceProblem:
    """Fetch a project into its repository in the cache. If the server does not answer, print a note and return the
    repository as it is, provided that it was filled before."""
    from remuda.lib.files import wait_for_file_lock
    from remuda.localrun.settings.answers import can_ask
    from remuda.localrun.sources.fetch_process import fetch

    what = f"{project} from {server.host}"
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with wait_for_file_lock(place.with_suffix(".lock")):
            _create(place)
            if can_ask():
                print(f"remuda: fetching {what}", file=sys.stderr)
            failure = fetch(place, server.url(project), _REFSPECS, can_ask=can_ask())
            if failure is not None and failure.is_locked:
                # No other command writes to the repository now, so a killed git has left these.
                for lock in place.rglob("*.lock"):
                    lock.unlink()
                failure = fetch(place, server.url(project), _REFSPECS, can_ask=can_ask())
            if failure is None:
                _point_head(_repository(place))
                (place / _FETCHED).touch()
                return place
    except OSError as error:
        return SourceProblem(
            reason=f"{project} cannot be fetched: {error.strerror}: {error.filename or place}",
            suggestion="make the user's cache folder writable, or set XDG_CACHE_HOME",
        )
    if failure.is_unanswered and (place / _FETCHED).exists():
        age = time.strftime("%Y-%m-%d %H:%M", time.localtime((place / _FETCHED).stat().st_mtime))
        print(f"remuda: cannot fetch {what} ({failure.reason}); using the copy of {age}", file=sys.stderr)
        return place
    cure = (
        "check the network and the address, or pass --project with a clone of it"
        if failure.is_unanswered
        else f"check that `git ls-remote {server.url(project)}` works; git uses your credential helpers and SSH keys"
    )
    return SourceProblem(
        reason=f"cannot fetch {what}: {failure.reason}", suggestion=re.sub(r"(?<=://)[^/@\s]+@", "", cure)
    )


def _create(place: Path) -> None:
    """Create an empty bare repository, unless it exists."""
    for folder in ("objects/info", "refs/heads"):
        (place / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (place / "config").exists():
        (place / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    if not (place / "HEAD").exists():
        (place / "HEAD").write_text("ref: refs/heads/main\n")


def _point_head(repository: "Repository") -> None:
    """Let HEAD name the branch whose commit is the HEAD of the server; of several the usual one."""
    from remuda.lib.files import write_whole

    listing = repository.answer("for-each-ref", "--format=%(refname)", "--points-at", "refs/remuda/HEAD", "refs/heads")
    branches = listing.split()
    current = repository.answer("symbolic-ref", "--quiet", "HEAD")
    usual = (current, "refs/heads/main", "refs/heads/master")
    branch = next((name for name in usual if name in branches), branches[0] if branches else "")
    if branch and branch != current:
        write_whole(repository.folder / "HEAD", f"ref: {branch}\n".encode())
