"""Options that several commands share, with the one way each is read."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from remuda.cli.exits import BadInputError

Data = Annotated[Path | None, Parameter(help="Folder for everything that is kept [default: the user's data folder].")]
Output = Annotated[Literal["text", "json"], Parameter(help="What to print: text for people, json for programs.")]
Url = Annotated[str | None, Parameter(help="Address of the cell [default: REMUDA_URL, or what `remuda up` stored].")]


def data_folder(given: Path | None) -> Path:
    """The folder to use: the given one, or the platform's place for a user's data."""
    if given is not None:
        return given.absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("remuda"))


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; IPv6 in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInputError(f"--listen {text}: not an address; write HOST:PORT, for example 127.0.0.1:8929")
    return host.removeprefix("[").removesuffix("]"), int(port)
