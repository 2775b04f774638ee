"""`remuda cell encryption list|rotate|forget|generate`: the keys that encrypt a cell's secrets.

All commands may be called while the cell runs. `remuda.cell.operations.encryption_keys` does the work.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import Config, Database, print_warnings, settings_from
from remuda.cli.options import Data, Output

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings


def list_keys(*, data: Data = None, database: Database = None, config: Config = None, output: Output = "text") -> None:
    """List the encryption keys of a cell, and how many rows of its store are encrypted with each.

    Try:

        remuda cell encryption list --data /var/lib/remuda
        remuda cell encryption list --data /var/lib/remuda --output json
    """
    import msgspec

    from remuda.cell.operations.encryption_keys import list_encryption_keys

    keys = asyncio.run(list_encryption_keys(_settings(data, database, config)))
    if output == "json":
        print(json.dumps(msgspec.to_builtins(keys), indent=2))
        return
    for key in keys:
        use = "encrypts" if key.encrypts else "decrypts" if key.known else "IS MISSING"
        print(f"{key.id:<14} {key.rows:>10} rows  {use}")


def rotate(*, data: Data = None, database: Database = None, config: Config = None) -> None:
    """Create a new encryption key and encrypt everything with it. The cell may run.

    If the command is interrupted, nothing is lost: run it again. Old keys stay in the key file, so that remaining rows
    and earlier backups can be read; `remuda cell encryption forget` removes one. If REMUDA_ENCRYPTION_KEYS has the
    keys, no key is created: put a new key first in that variable, restart the cell's processes, then run this
    command.

    Try:

        remuda cell encryption rotate --data /var/lib/remuda
    """
    from remuda.cell.operations.encryption_keys import rotate_encryption_key

    key, changed = asyncio.run(rotate_encryption_key(_settings(data, database, config)))
    print(f"key {key} encrypts now; {changed} rows were encrypted with it")


def forget(
    key: Annotated[str, Parameter(help="Id of the key, as `remuda cell encryption list` prints it.")],
    *,
    data: Data = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Remove an old encryption key with which nothing is encrypted any more.

    Afterwards, backups that were encrypted with it can be restored only with a copy of the key.

    Try:

        remuda cell encryption forget 3f2a9c10b7de --data /var/lib/remuda
    """
    from remuda.cell.operations.encryption_keys import forget_encryption_key

    asyncio.run(forget_encryption_key(_settings(data, database, config), key))
    print(f"key {key} is removed")


def generate() -> None:
    """Print a new encryption key, for REMUDA_ENCRYPTION_KEYS.

    Try:

        remuda cell encryption generate
    """
    from remuda.cell.operations.encryption_keys import generate_encryption_key

    print(generate_encryption_key())


def _settings(data: Path | None, database: str | None, config: Path | None) -> "CellSettings":
    print_warnings(os.environ)
    return settings_from(os.environ, data=data, config=config, database=database)
