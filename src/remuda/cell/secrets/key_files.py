"""Where the keys are that a cell's secrets are encrypted with, and how a new one comes in.

Decided here: keys that the settings give win; otherwise they stand in a file, a line each, the one that seals first,
which the first start of a cell makes for its user alone. A store that is encrypted already never gets a new file: its
keys are somewhere, and a cell that began with others would only hide that. How texts are sealed is in `sealing`.

Invariant: a key stands in the file, on the disk, before anything is sealed with it.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.secrets.sealed_store import SETTING
from remuda.cell.secrets.sealing import EncryptionKeys, Seals, new_key, read_key, written_key
from remuda.cell.settings import CellSettings
from remuda.lib.files import sync_folder, write_whole
from remuda.telemetry.logs import logger

NAME = "encryption.keys"
CHECK = "encryption_check"
"""A setting by which a start sees whether its keys are the right ones."""
VARIABLE = "REMUDA_ENCRYPTION_KEYS"
_log = logger("cell")
_HEAD = "# The keys of this cell's secrets; the first one encrypts. Keep a copy elsewhere: without it they are lost.\n"


def key_file(settings: CellSettings) -> Path:
    """Where the file is, or would be."""
    return settings.encryption_key_file or settings.data / NAME


def seals_for(settings: CellSettings, checked: str | None) -> Seals:
    """The keys of a cell; `checked` is what its store has as CHECK, None when it has nothing sealed yet.

    CellError when there are none, or when they are not those that the store was encrypted with.
    """
    path = key_file(settings)
    if settings.encryption_keys:
        seals = Seals(_given(settings), where=VARIABLE)
    else:
        if checked is None and not path.exists():
            _create(path)
        seals = Seals(read_keys(path), lambda: read_keys(path), where=str(path))
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning("others on this machine may read the encryption keys; chmod 600", file=str(path))
    if checked is not None:
        seals.unseal(checked, SETTING)
    return seals


def _given(settings: CellSettings) -> EncryptionKeys:
    return EncryptionKeys([read_key(text, VARIABLE) for text in settings.encryption_keys])


def read_keys(path: Path) -> EncryptionKeys:
    """What stands in a file."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise DataFolderError(
            f"the secrets of this cell are encrypted, and the file with their keys, {path}, is not there; bring it "
            f"back from where a copy of it is kept, or give the keys in {VARIABLE}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataFolderError(f"cannot read the encryption keys in {path}: {error}") from None
    texts = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not texts:
        raise DataFolderError(f"{path} has no key; bring the file back from where a copy of it is kept")
    return EncryptionKeys([read_key(line, f"{path}, line {number}") for number, line in texts])


def add_key(path: Path) -> EncryptionKeys:
    """Put a new key in front of the others."""
    return _write(path, [new_key(), *read_keys(path).by_id.values()])


def remove_key(path: Path, name: str) -> EncryptionKeys:
    """Take a key out that seals nothing any more."""
    return _write(path, [key for known, key in read_keys(path).by_id.items() if known != name])


def _write(path: Path, keys: list[bytes]) -> EncryptionKeys:
    try:
        write_whole(path, _text(keys), durable=True)
    except OSError as error:
        raise DataFolderError(f"cannot write the encryption keys to {path}: {error.strerror}") from None
    return EncryptionKeys(keys)


def _create(path: Path) -> None:
    """A first key; of several processes that begin at once one makes it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.first")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_text([new_key()]))
            file.flush()
            os.fsync(file.fileno())
        try:
            with suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise CellError(f"cannot write the encryption keys to {path}: {error.strerror}") from None


def _text(keys: list[bytes]) -> bytes:
    return (_HEAD + "".join(f"{written_key(key)}\n" for key in keys)).encode()
