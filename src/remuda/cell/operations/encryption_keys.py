"""Lists, rotates and removes the keys that encrypt the secrets in a cell's database. The cell may be running or not.

A key can be removed only when no row is encrypted with it, and when every process of the cell has had time to read the
newer key and encrypt with that."""

import time

import msgspec

from remuda.cell.errors import CellError
from remuda.cell.operations.existing_store import check_revision, open_existing_store, record_command
from remuda.cell.secrets.key_files import CHECK, VARIABLE, add_key, key_file, load_seals, remove_key
from remuda.cell.secrets.resealing import count_keys_in_use, reseal
from remuda.cell.secrets.sealing import Seals, format_key, new_key
from remuda.cell.settings import CellSettings
from remuda.cell.store import snapshots

SETTLED_SECONDS = 120
"""Longer than any process of a cell continues to encrypt with the old key after a new one was added."""


class EncryptionKeyState(msgspec.Struct, frozen=True, kw_only=True):
    """An encryption key: how many rows use it, whether it encrypts new secrets, and whether the cell has it."""

    id: str
    """`none` stands for rows with secrets that are not encrypted."""
    rows: int
    encrypts: bool
    """New secrets are encrypted with it; with other keys they are only decrypted."""
    known: bool
    """False: rows need it, but it is missing."""


def generate_encryption_key() -> str:
    return format_key(new_key())


def encryption_key_place(settings: CellSettings) -> str:
    """Return where the encryption keys are: the name of the environment variable, or the path of the key file."""
    return VARIABLE if settings.encryption_keys else str(key_file(settings))


async def list_encryption_keys(settings: CellSettings) -> list[EncryptionKeyState]:
    keys = (await _read_seals(settings)).keys
    rows = await count_keys_in_use(settings)
    return [
        EncryptionKeyState(id=key or "none", rows=rows[key], encrypts=key == keys.primary, known=key in keys.by_id)
        for key in dict.fromkeys([*keys.by_id, *rows])
    ]


async def rotate_encryption_key(settings: CellSettings) -> tuple[str, int]:
    """Encrypt all rows again. If the keys are in the key file, a new key is added there and used; if they are in the
    settings, the first one is used. Returns the id of that key and the number of rows that changed. Can be repeated
    after a failure."""
    seals = await _read_seals(settings)
    if not settings.encryption_keys:
        add_key(key_file(settings))
        seals.refresh()
    await _record(settings, "encryption_key_rotated", seals.keys.primary)
    return seals.keys.primary, await reseal(settings, seals)


async def forget_encryption_key(settings: CellSettings, key: str) -> None:
    """Encrypt all rows with the newest key, and then remove the key with the id `key` from the key file. Raises
    CellError if the key is unknown or still in use, if the keys are in the settings, or if the key file was changed
    less than `SETTLED_SECONDS` ago."""
    seals = await _read_seals(settings)
    if settings.encryption_keys:
        raise CellError(
            f"the keys are given in {VARIABLE}; remove the key there once `remuda cell encryption list` shows no rows "
            "for it"
        )
    if key not in seals.keys.by_id:
        raise CellError(f"there is no key {key}; `remuda cell encryption list` shows the existing keys")
    if key == seals.keys.primary:
        raise CellError(
            f"key {key} is the one that encrypts; create a new one first with `remuda cell encryption rotate`"
        )
    path = key_file(settings)
    age = time.time() - path.stat().st_mtime
    if age < SETTLED_SECONDS:
        raise CellError(
            "the keys were changed a moment ago and a process of the cell may still use the old one; "
            f"try again in {SETTLED_SECONDS - age:.0f} seconds"
        )
    await reseal(settings, seals)
    if rows := (await count_keys_in_use(settings))[key]:
        raise CellError(f"{rows} rows are still encrypted with key {key}; try again")
    await _record(settings, "encryption_key_removed", key)
    remove_key(path, key)


async def _record(settings: CellSettings, action: str, key: str) -> None:
    async with open_existing_store(settings) as (store, _):
        await record_command(store, action, key)


async def _read_seals(settings: CellSettings) -> Seals:
    async with snapshots.read(settings) as rows:
        check_revision(rows)
        checked = [row[0] async for row in rows.rows(f"SELECT value FROM settings WHERE name = '{CHECK}'")]
    if not checked:
        raise CellError("nothing is encrypted yet: the first start of the cell with this release does that")
    return load_seals(settings, checked[0])
