"""Remembers which manager of this user has which configuration file and data folder, so that commands can name a
manager by its configuration. Each has a folder below `managers`, which is also its data folder unless it was given
another one. The note outlives the manager, so whether it runs has to be checked (`control.is_served`)."""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from remuda.lib.files import write_whole

NOTE = "manager.json"


class KnownManager(msgspec.Struct, frozen=True, kw_only=True):
    config: str
    """Its configuration file; empty: unknown."""
    data: str
    """Its data folder."""


def usual_folder(managers: Path, config: Path) -> Path:
    """Return the folder of the manager with this configuration file, which is its data folder by default. `managers`:
    the folder for all managers of the user."""
    return managers / hashlib.sha256(str(config.resolve()).encode()).hexdigest()[:12]


def remember_manager(managers: Path, config: Path, data: Path) -> None:
    """Store the data folder of the manager with this configuration file. Not stored if that is not possible, such as in
    a read-only home."""
    note = usual_folder(managers, config) / NOTE
    with suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(note, msgspec.json.encode(KnownManager(config=str(config.resolve()), data=str(data))))


def find_data_folder(managers: Path, config: Path) -> Path:
    """Return the data folder of the manager that was last started with this configuration file, else the usual one."""
    return Path(_read(usual_folder(managers, config)).data)


def list_managers(managers: Path) -> list[KnownManager]:
    return [_read(folder) for folder in sorted(managers.glob("*"))]


def _read(folder: Path) -> KnownManager:
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=KnownManager)
    except (OSError, msgspec.MsgspecError):
        return KnownManager(config="", data=str(folder))
