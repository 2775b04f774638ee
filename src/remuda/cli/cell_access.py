"""How commands that talk to a cell find it: its address and a token, from options, the environment, or `remuda up`.

`remuda up` stores both in `client.json` in its data folder, readable by its user only. A stored token goes only to the
stored address: naming another cell does not hand it over.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.cli.exits import BadInputError
from remuda.lib.files import write_whole

FILE_NAME = "client.json"
VERSION = 1
CELL_ID = 1
"""There is only one cell in an embedded platform."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A cell and a token for it."""

    version: int = VERSION
    url: str
    token: str


def stored(data: Path, name: str = FILE_NAME) -> Access | None:
    """What `remuda up` left in its data folder."""
    file = data / name
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Access)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise BadInputError(f"{file} cannot be read: {error}; give --url and REMUDA_TOKEN instead") from None
    if found.version > VERSION:
        raise BadInputError(f"{file} was written by a newer remuda; use that one, or give --url and REMUDA_TOKEN")
    return found


def store(data: Path, access: Access, name: str = FILE_NAME) -> None:
    """Keep it for later commands; whole or not at all, and for this user only."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(data / name, msgspec.json.format(msgspec.json.encode(access)) + b"\n", durable=True)


def ensure_token(folder: Path, given: str | None = None) -> str:
    """The administrator's token of the platform in this folder; a new one is stored before any cell hears of it."""
    from remuda.cell.service import new_admin_token

    kept = stored(folder)
    token = given or (kept.token if kept else new_admin_token(CELL_ID))
    if kept is None:
        store(folder, Access(url="", token=token))
    return token


def find(*, url: str | None, kept: Access | None, environment: Mapping[str, str]) -> Access:
    """Which cell to ask, and with what token."""
    address = (url or environment.get("REMUDA_URL") or (kept.url if kept else "")).rstrip("/")
    if not address:
        raise BadInputError(
            "which cell? Start one with `remuda up`, or give its address with --url or REMUDA_URL "
            "(and --data when `remuda up` had one)"
        )
    if not _is_address(address):
        raise BadInputError(f"{address}: is no address of a cell; it begins with http:// or https:// and names a host")
    token = environment.get("REMUDA_TOKEN") or (kept.token if kept and kept.url == address else "")
    if not token:
        raise BadInputError(f"no token for the cell at {address}; put one into REMUDA_TOKEN")
    check_token(token, "REMUDA_TOKEN")
    return Access(url=address, token=token)


def check_token(token: str, where: str) -> None:
    """BadInputError for what cannot be a token, and no header could carry."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadInputError(f"{where} holds a line break, a space or another sign that no token has; copy it again")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - a port that is none shows only when it is asked for
        text.encode()
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
