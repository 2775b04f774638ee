"""`remuda cell encryption list|rotate|forget|generate`: what an operator does with the keys of a cell's secrets.

Decided here: what is said, and when a key may go: not while anything is sealed with it, and not before every process
of the cell has had the time to take up the key that seals now. The rest is in `remuda.cell.secrets.key_files` and
`remuda.cell.secrets.resealing`. All commands may be called while the cell runs.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.audit import record
from remuda.cli.cell.settings import Config, Database, print_warnings, settings_from
from remuda.cli.exits import BadInputError
from remuda.cli.options import Data, Output

if TYPE_CHECKING:
    from remuda.cell.secrets.sealing import Seals
    from remuda.cell.settings import CellSettings

_SETTLED_SECONDS = 120
"""Longer than any process of a cell goes on sealing with a key that is not the first one any more."""


def list_keys(*, data: Data = None, database: Database = None, config: Config = None, output: Output = "text") -> None:
    """List the encryption keys of a cell, and how many rows of its store are encrypted with each.

    Try:

        remuda cell encryption list --data /var/lib/remuda
        remuda cell encryption list --data /var/lib/remuda --output json
    """
    keys = asyncio.run(_list(_settings(data, database, config)))
    if output == "json":
        print(json.dumps(keys, indent=2))
        return
    for key in keys:
        use = "encrypts" if key["encrypts"] else "decrypts" if key["known"] else "IS MISSING"
        print(f"{key['id']:<14} {key['rows']:>10} rows  {use}")


def rotate(*, data: Data = None, database: Database = None, config: Config = None) -> None:
    """Make a new encryption key and encrypt everything with it, while the cell runs or not.

    If it is interrupted nothing is lost: call it again. The old keys stay in the key file, so that what is left and
    backups from before can be read; `remuda cell encryption forget` removes one. Where the keys are given in
    REMUDA_ENCRYPTION_KEYS no key is made: put a new one in front there, restart the cell's processes, then call this.

    Try:

        remuda cell encryption rotate --data /var/lib/remuda
    """
    key, changed = asyncio.run(_rotate(_settings(data, database, config)))
    print(f"key {key} encrypts now; {changed} rows were encrypted with it")


def forget(
    key: Annotated[str, Parameter(help="The id of the key, as `remuda cell encryption list` shows it.")],
    *,
    data: Data = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Remove an old encryption key, once nothing is encrypted with it any more.

    Backups that were encrypted with it cannot be restored then, unless a copy of the key is kept elsewhere.

    Try:

        remuda cell encryption forget 3f2a9c10b7de --data /var/lib/remuda
    """
    asyncio.run(_forget(_settings(data, database, config), key))
    print(f"key {key} is removed")


def generate() -> None:
    """Print a new encryption key, for REMUDA_ENCRYPTION_KEYS.

    Try:

        remuda cell encryption generate
    """
    from remuda.cell.secrets.sealing import new_key, written_key

    print(written_key(new_key()))


def _settings(data: Path | None, database: str | None, config: Path | None) -> "CellSettings":
    print_warnings(os.environ)
    return settings_from(os.environ, data=data, config=config, database=database)


async def _recorded(settings: "CellSettings", action: str, target: str) -> None:
    import msgspec

    from remuda.cell.store import tables
    from remuda.cell.store.open import open_store

    async with tables.read(settings) as found:
        cell_id = found.cell_id
    store, _ = await open_store(msgspec.structs.replace(settings, cell_id=cell_id))
    try:
        await record(store, action, target)
    finally:
        await store.close()


async def _seals(settings: "CellSettings") -> "Seals":
    from remuda.cell.secrets.key_files import CHECK, seals_for
    from remuda.cell.store import migrations, tables

    async with tables.read(settings) as found:
        if found.revision != migrations.HEAD:
            raise BadInputError(
                f"the store has schema version {found.revision}, not {migrations.HEAD}; "
                "`remuda cell migrate` brings it up to date"
            )
        checked = [row[0] async for row in found.rows(f"SELECT value FROM settings WHERE name = '{CHECK}'")]
    if not checked:
        raise BadInputError("nothing is encrypted yet: the first start of the cell with this release does that")
    return seals_for(settings, checked[0])


async def _list(settings: "CellSettings") -> list[dict[str, object]]:
    from remuda.cell.secrets.resealing import keys_in_use

    keys = (await _seals(settings)).keys
    rows = await keys_in_use(settings)
    names = dict.fromkeys([*keys.by_id, *rows])
    return [
        {"id": name or "none", "rows": rows[name], "encrypts": name == keys.primary, "known": name in keys.by_id}
        for name in names
    ]


async def _rotate(settings: "CellSettings") -> tuple[str, int]:
    from remuda.cell.secrets.key_files import add_key, key_file
    from remuda.cell.secrets.resealing import reseal

    seals = await _seals(settings)
    if not settings.encryption_keys:
        add_key(key_file(settings))
        seals.refresh()
    await _recorded(settings, "encryption_key_rotated", seals.keys.primary)
    return seals.keys.primary, await reseal(settings, seals)


async def _forget(settings: "CellSettings", key: str) -> None:
    from remuda.cell.secrets.key_files import VARIABLE, key_file, remove_key
    from remuda.cell.secrets.resealing import keys_in_use, reseal

    seals = await _seals(settings)
    if settings.encryption_keys:
        raise BadInputError(f"the keys are given in {VARIABLE}; once `list` shows no rows for a key take it out there")
    if key not in seals.keys.by_id:
        raise BadInputError(f"there is no key {key}; `remuda cell encryption list` shows those there are")
    if key == seals.keys.primary:
        raise BadInputError(
            f"key {key} is the one that encrypts; `remuda cell encryption rotate` makes a new one first"
        )
    path = key_file(settings)
    age = time.time() - path.stat().st_mtime
    if age < _SETTLED_SECONDS:
        raise BadInputError(
            "the keys were changed a moment ago and a process of the cell may still use the old one; "
            f"try again in {_SETTLED_SECONDS - age:.0f} seconds"
        )
    await reseal(settings, seals)
    if rows := (await keys_in_use(settings))[key]:
        raise BadInputError(f"{rows} rows are still encrypted with key {key}; try again")
    await _recorded(settings, "encryption_key_removed", key)
    remove_key(path, key)
