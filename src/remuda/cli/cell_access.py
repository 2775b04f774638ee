"""Finds the cell that a command calls, and the token for it: from options, the environment, or what `remuda up` stored.

A stored token is sent only to the stored address, never to another one that an option or variable names."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from cyclopts import Parameter

from remuda.cli.options import Data, Url
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.localrun.client_file import Access
    from remuda.wire.user_client import UserClient

_T = TypeVar("_T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CellAddress:
    """The options that select a running cell, as one parameter of a command."""

    url: Url = None
    data: Data = None

    def ask(self, question: "Callable[[UserClient], Awaitable[_T]]") -> _T:
        return event_loop.run(self._ask(question))

    async def _ask(self, question: "Callable[[UserClient], Awaitable[_T]]") -> _T:
        from remuda.localrun.client_file import read_access
        from remuda.localrun.data_folder import data_folder
        from remuda.wire.user_client import UserClient

        access = find_access(url=self.url, stored=read_access(data_folder(self.data)), environment=os.environ)
        async with UserClient(access.url, access.token) as client:
            return await question(client)


USUAL_CELL = CellAddress()


def find_access(*, url: str | None, stored: "Access | None", environment: Mapping[str, str]) -> "Access":
    """Return address and token of the cell. Address: `url`, else REMUDA_URL, else the stored one. Token: REMUDA_TOKEN,
    else the stored one if the address is the stored one. Raises BadInputError if one is missing or invalid."""
    from remuda.localrun.client_file import Access

    address = (url or environment.get("REMUDA_URL") or (stored.url if stored else "")).rstrip("/")
    if not address:
        raise BadInputError(
            "which cell? Start one with `remuda up`, or give its address with --url or REMUDA_URL "
            "(and --data when `remuda up` had one)"
        )
    if not _is_address(address):
        raise BadInputError(
            f"{address}: is not the address of a cell; it begins with http:// or https:// and names a host"
        )
    token = environment.get("REMUDA_TOKEN") or (stored.token if stored and stored.url == address else "")
    if not token:
        raise BadInputError(f"no token for the cell at {address}; put one into REMUDA_TOKEN")
    check_token(token, "REMUDA_TOKEN")
    return Access(url=address, token=token)


def check_token(token: str, where: str) -> None:
    """Raise BadInputError if an HTTP header cannot contain the token. `where`: its source, for the message."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadInputError(
            f"{where} holds a line break, a space or another character that no token has; copy it again"
        )


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - a bad port raises only when it is read
        text.encode()
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
