"""Finds the cell that a command calls, and the token for it. The first of these that names a cell wins: options (--data
names that of `remuda up`), environment, the current profile of `remuda login`, and the address that `remuda up` stored.

A stored token is sent only to the address with which it is stored, never to one that an option or variable names."""

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote, urlsplit

from cyclopts import Parameter

from remuda.cli.options import Data, Url
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.cli.access.profiles import Profiles
    from remuda.localrun.client_file import Access
    from remuda.wire.user_client import UserClient

_T = TypeVar("_T")
ProfileName = Annotated[
    str | None,
    Parameter(name="--profile", help="Profile of `remuda login` [default: REMUDA_PROFILE, else the current one]."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CellAddress:
    """The options that select a running cell, as one parameter of a command."""

    url: Url = None
    profile: ProfileName = None
    data: Data = None

    def find(self) -> "Access":
        """Return address and token of the cell. Raises BadInputError if one is missing or invalid."""
        from remuda.cli.access.profiles import profiles_file, read_profiles
        from remuda.localrun.client_file import read_access
        from remuda.localrun.data_folder import data_folder

        url = self.url or (os.environ.get("REMUDA_URL") if self.data is None else None)
        if not self.profile and url and os.environ.get("REMUDA_TOKEN"):
            # Stored files are not needed, so a damaged one does not matter.
            return find_access(url=self.url, stored=None, environment=os.environ)
        return find_access(
            url=self.url,
            profile=self.profile,
            # Nothing else must win over a platform that --data names, nor replace one that is not there.
            stored_first=self.data is not None,
            profiles=read_profiles(profiles_file()),
            stored=read_access(data_folder(self.data)),
            environment=os.environ,
        )

    def ask(self, question: "Callable[[UserClient], Awaitable[_T]]") -> _T:
        return event_loop.run(self._ask(question))

    async def _ask(self, question: "Callable[[UserClient], Awaitable[_T]]") -> _T:
        from remuda.wire.user_client import UnreachableError, UserClient

        access = self.find()
        try:
            async with UserClient(access.url, access.token) as client:
                return await question(client)
        except UnreachableError as error:
            raise UnreachableError(f"{error}{self._other_cells(access.url)}") from error

    def _other_cells(self, url: str) -> str:
        """Return a sentence about the profile that named the unreachable cell at `url`, and how to choose another cell;
        '' if no profile did."""
        from remuda.cli.access.profiles import profiles_file, read_profiles
        from remuda.localrun.client_file import read_access
        from remuda.localrun.data_folder import data_folder

        if self.url or (not self.profile and (self.data or os.environ.get("REMUDA_URL"))):
            return ""
        name = self.profile or chosen_profile(os.environ, read_profiles(profiles_file()))
        if not name:
            return ""
        folder = data_folder(self.data)
        stored = read_access(folder)
        own = f"; --data {shlex.quote(str(folder))} chooses that of `remuda up`" if stored and stored.url != url else ""
        return (
            f". The profile {name} of `remuda login` names this cell; choose another with --profile NAME, or for all "
            f"commands with `remuda login --use NAME`{own}"
        )

    def project(self, project: str | None) -> str:
        """Return the path of the project that `--project` names, or that of the current folder; BadInputError without
        one."""
        from remuda.cli.access.folder_project import require_project

        return project or require_project(None, self.find().url)

    def folder_project(self) -> str | None:
        """Return the path of the current folder's project on the cell; None if the folder belongs to none."""
        from remuda.cli.access.folder_project import find_folder_project

        return find_folder_project(self.find().url)


USUAL_CELL = CellAddress()


def in_project(project: str | int, *words: str | int) -> str:
    """Return a path of the API below a project, which is given by its path or number."""
    return below("projects", project, *words)


def below(collection: str, owner: str | int, *words: str | int) -> str:
    """Return a path of the API below an object of a collection, with every word encoded."""
    return "/".join(["/api/v4", collection, *(quote(str(word), safe="") for word in (owner, *words))])


def find_access(
    *,
    url: str | None,
    stored: "Access | None",
    environment: Mapping[str, str],
    profile: str | None = None,
    profiles: "Profiles | None" = None,
    stored_first: bool = False,
) -> "Access":
    """Return address and token of the cell. Address: `url`, else that of `profile`, else REMUDA_URL, else that of
    REMUDA_PROFILE, else that of the current profile, else the stored one. Token: that of `profile`, else REMUDA_TOKEN,
    else that of a profile or of the stored access with this address. `stored_first`: the stored address wins over
    variables and the current profile; then REMUDA_TOKEN is not used if REMUDA_URL names another cell. Raises
    BadInputError if address or token is missing or invalid."""
    from remuda.cli.access.profiles import Profiles
    from remuda.localrun.client_file import Access

    profiles = profiles or Profiles()
    if url and profile:
        raise BadInputError("--url and --profile both name a cell; leave one of them out")
    if profile:
        chosen = profiles.find(profile)
        return Access(url=chosen.url, token=chosen.token)
    named = (environment.get("REMUDA_URL") or "").rstrip("/")
    name = "" if url or stored_first else chosen_profile(environment, profiles)
    if name:
        address = profiles.find(name).url
    else:
        address = url or ("" if stored_first else named) or (stored.url if stored else "")
    address = address.rstrip("/")
    if not address and stored_first:
        raise BadInputError("no `remuda up` has run with this folder; correct --data, or leave it out")
    if not address:
        raise BadInputError(
            "which cell? Start one with `remuda up`, sign in to one with `remuda login URL`, or give its address with "
            "--url or REMUDA_URL (and --data when `remuda up` had one)"
        )
    check_address(address)
    is_for_another = stored_first and not url and named not in ("", address)
    token = "" if is_for_another else environment.get("REMUDA_TOKEN") or ""
    if not token and name:
        token = profiles.find(name).token
    if not token and stored and stored.url == address:
        token = stored.token
    if not token and (same := profiles.find_by_url(address)):
        token = same.token
    if not token:
        raise BadInputError(
            f"no token for the cell at {address}; sign in with `remuda login {address}`, or put one into REMUDA_TOKEN"
        )
    check_token(token, "REMUDA_TOKEN")
    return Access(url=address, token=token)


def chosen_profile(environment: Mapping[str, str], profiles: "Profiles") -> str:
    """Return the name of the profile that commands use without options; '' if they use none."""
    return "" if environment.get("REMUDA_URL") else environment.get("REMUDA_PROFILE") or profiles.current


def check_token(token: str, where: str) -> None:
    """Raise BadInputError if an HTTP header cannot contain the token. `where`: its source, for the message."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadInputError(
            f"{where} holds a line break, a space or another character that no token has; copy it again"
        )


def check_address(address: str) -> None:
    """Raise BadInputError if a text is not the address of an HTTP server."""
    if not _is_address(address):
        raise BadInputError(
            f"{address}: is not the address of a cell; it begins with http:// or https:// and names a host"
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - a bad port raises only when it is read
        text.encode()
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
