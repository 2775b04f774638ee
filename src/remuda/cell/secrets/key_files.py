"""The encryption keys of a cell: where they are stored, and how keys are added and removed.

Keys in the settings take precedence. Otherwise they are in a file, one per line; the first one encrypts. The first
start creates the file, but not if the database already has encrypted secrets: then the old key file is missing, and a
new key could not decrypt them. Invariant: a key is in the file, synced to disk, before anything is encrypted with it.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from remuda.cell.errors import CellError, DataFolderError
from remuda.cell.secrets.sealed_store import SETTING
from remuda.cell.secrets.sealing import EncryptionKeys, Seals, format_key, new_key, read_key
from remuda.cell.settings import CellSettings
from remuda.lib.files import sync_folder, write_whole
from remuda.telemetry.logs import logger

NAME = "encryption.keys"
CHECK = "encryption_check"
"""A sealed setting; if a start cannot open it, its keys are wrong."""
VARIABLE = "REMUDA_ENCRYPTION_KEYS"
_log = logger("cell")
_HEAD = "# The keys of this cell's secrets; the first one encrypts. Keep a copy elsewhere: without it they are lost.\n"


def key_file(settings: CellSettings) -> Path:
    return settings.encryption_key_file or settings.data / NAME


def load_seals(settings: CellSettings, checked: str | None) -> Seals:
    """Load a cell's encryption keys, for encryption and decryption. `checked`: an encrypted setting from the database,
    to test them; if None, nothing is encrypted yet, and a missing first key is created. Raises CellError if there are
    no keys, or they cannot decrypt `checked`."""
    path = key_file(settings)
    if settings.encryption_keys:
        seals = Seals(_keys_of_settings(settings), where=VARIABLE)
    else:
        if checked is None and not path.exists():
            _create(path)
        seals = Seals(read_keys(path), lambda: read_keys(path), where=str(path))
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _log.warning(
                "other users can read the encryption key file; using it anyway, run chmod 600 on it", file=str(path)
            )
    if checked is not None:
        seals.unseal(checked, SETTING)
    return seals


def _keys_of_settings(settings: CellSettings) -> EncryptionKeys:
    return EncryptionKeys([read_key(text, VARIABLE) for text in settings.encryption_keys])


def read_keys(path: Path) -> EncryptionKeys:
    """Read the keys in a file. Raises DataFolderError if it cannot be read or has no key."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise DataFolderError(
            f"the secrets of this cell are encrypted, and the file with their keys, {path}, is missing; restore it "
            f"from a copy, or give the keys in {VARIABLE}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataFolderError(f"cannot read the encryption keys in {path}: {error}") from None
    texts = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not texts:
        raise DataFolderError(f"{path} has no key; restore the file from a copy")
    return EncryptionKeys([read_key(line, f"{path}, line {number}") for number, line in texts])


def add_key(path: Path) -> EncryptionKeys:
    """Add a new key to the file. It becomes the first one, with which secrets are encrypted. Returns all keys."""
    return _write(path, [new_key(), *read_keys(path).by_id.values()])


def remove_key(path: Path, name: str) -> EncryptionKeys:
    """Remove the key with the id `name` from the file. The caller must have checked that no secret is encrypted with
    it. Returns the remaining keys."""
    return _write(path, [key for id_, key in read_keys(path).by_id.items() if id_ != name])


def _write(path: Path, keys: list[bytes]) -> EncryptionKeys:
    try:
        write_whole(path, _text(keys), durable=True)
    except OSError as error:
        raise DataFolderError(f"cannot write the encryption keys to {path}: {error.strerror}") from None
    return EncryptionKeys(keys)


def _create(path: Path) -> None:
    """Create the key file with a first key. If several processes do this at once, the first file is kept."""
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
    return (_HEAD + "".join(f"{format_key(key)}\n" for key in keys)).encode()
