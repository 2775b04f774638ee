"""Chooses and checks the folders in which commands keep their data."""

import os
from pathlib import Path

from remuda.lib.exits import BadInputError

_PLATFORM_NAMES = frozenset({"cell", "manager", "managers", "client.json", "runner.json", "remuda.log", "lost+found"})


def data_folder(folder: Path | None) -> Path:
    """Return the value of a `--data` option as absolute path; None: the default folder of Remuda for this user."""
    if folder is not None:
        return folder.absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("remuda"))


def usable_folder(folder: Path, option: str) -> Path:
    """Return the folder, created if missing. Raises BadInputError, which names the option, if it is not writable."""
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
    """Return a local platform's data folder, created if missing. Raises BadInputError, which names the option, if it
    has other files and no `client.json`: the path is probably mistyped."""
    usable_folder(folder, option)
    names = sorted(entry.name for entry in folder.iterdir())
    ours = (*_PLATFORM_NAMES, *(name for name in names if name.startswith((".", "snapshot-")) and name != ".git"))
    foreign = [name for name in names if name not in ours]
    if foreign and "client.json" not in names:
        raise BadInputError(
            f"{option} {folder}: holds something else ({', '.join(foreign[:3])}); give an empty or a new folder"
        )
    return folder
