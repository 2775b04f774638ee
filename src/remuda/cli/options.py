"""Options that several commands share, with the one way each is read."""

import os
from pathlib import Path
from typing import Annotated, Literal

from remuda.cli.exits import BadInputError
from remuda.cli.parameter import Parameter
from remuda.localrun.isolation import OPTION, Wanted

Data = Annotated[Path | None, Parameter(help="Folder for everything that is kept [default: the user's data folder].")]
Output = Annotated[Literal["text", "json"], Parameter(help="What to print: text for people, json for programs.")]
Isolate = Annotated[
    Wanted,
    Parameter(
        name=OPTION,
        help="How jobs are kept from the platform's own files: with bubblewrap, as another user (if you are root), or "
        "not at all; auto: the first of these that works here.",
    ),
]
Url = Annotated[str | None, Parameter(help="Address of the cell [default: REMUDA_URL, or what `remuda up` stored].")]

_OF_A_PLATFORM = frozenset({"cell", "manager", "managers", "client.json", "runner.json", "remuda.log", "lost+found"})


def data_folder(given: Path | None) -> Path:
    """The folder to use: the given one, or the platform's place for a user's data."""
    if given is not None:
        return given.absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("remuda"))


def usable_folder(folder: Path, option: str) -> Path:
    """The folder, which is made if it is not there."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"{option} {folder}: is a file; give a folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{option} {folder}: cannot be made: {error.strerror}; give another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInputError(f"{option} {folder}: you may not write there; give another folder")
    return folder


def platform_folder(folder: Path, option: str) -> Path:
    """The same for a platform's data: a folder with other things in it, mistyped probably, is left alone."""
    usable_folder(folder, option)
    names = sorted(entry.name for entry in folder.iterdir())
    ours = (*_OF_A_PLATFORM, *(name for name in names if name.startswith((".", "snapshot-")) and name != ".git"))
    foreign = [name for name in names if name not in ours]
    if foreign and "client.json" not in names:
        raise BadInputError(
            f"{option} {folder}: holds something else ({', '.join(foreign[:3])}); give an empty or a new folder"
        )
    return folder


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; IPv6 in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInputError(f"--listen {text}: not an address; write HOST:PORT, for example 127.0.0.1:8929")
    return host.removeprefix("[").removesuffix("]"), int(port)
