"""Reads and writes `client.json` in the data folder of a local platform: the cell's URL and administrator's token.
`remuda up` and `remuda run` write the file, readable only by their user; commands that call a cell read it."""

from pathlib import Path

import msgspec

from remuda.lib.exits import BadInputError
from remuda.lib.files import write_whole

FILE_NAME = "client.json"
VERSION = 1
CELL_ID = 1
"""An embedded platform has one cell."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    url: str
    token: str


def read_access(data: Path, name: str = FILE_NAME) -> Access | None:
    """Read URL and token of the cell from the file `name` in the folder `data`; None if there is no such file. Raises
    BadInputError if the file is unreadable or was written by a newer version of Remuda."""
    file = data / name
    try:
        access = msgspec.json.decode(file.read_bytes(), type=Access)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise BadInputError(f"{file} cannot be read: {error}; give --url and REMUDA_TOKEN instead") from None
    if access.version > VERSION:
        raise BadInputError(f"{file} was written by a newer remuda; use that one, or give --url and REMUDA_TOKEN")
    return access


def write_access(data: Path, access: Access, name: str = FILE_NAME) -> None:
    """Write URL and token to the file `name` in the folder `data`, atomically; only this user can read the file."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(data / name, msgspec.json.format(msgspec.json.encode(access)) + b"\n", durable=True)


def ensure_token(folder: Path, chosen: str | None = None) -> str:
    """Return the administrator's token: `chosen` if set, else that in `client.json`, else a new one. If the file is
    missing, writes it with the token and an empty URL; an existing one is not changed, even if `chosen` differs."""
    from remuda.cell.operations.admin_tokens import new_admin_token

    access = read_access(folder)
    token = chosen or (access.token if access else new_admin_token(CELL_ID))
    if access is None:
        write_access(folder, Access(url="", token=token))
    return token
