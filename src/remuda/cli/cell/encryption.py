"""`remuda cell encryption list|rotate|forget|generate`: manage the keys that encrypt a cell's secrets."""

from typing import Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.cli.options import Output
from remuda.cli.render.listing import print_json
from remuda.lib import event_loop


def list_keys(*, cell: CellOptions = NO_CELL_OPTIONS, output: Output = "text") -> None:
    """List the encryption keys of a cell, and how many rows of its store are encrypted with each.

    Try:

        remuda cell encryption list --data /var/lib/remuda
        remuda cell encryption list --data /var/lib/remuda --output json
    """
    from remuda.cell.operations.encryption_keys import list_encryption_keys

    keys = event_loop.run(list_encryption_keys(cell.settings()))
    if output == "json":
        print_json(keys)
        return
    for key in keys:
        use = "encrypts" if key.encrypts else "decrypts" if key.known else "IS MISSING"
        print(f"{key.id:<14} {key.rows:>10} rows  {use}")


def rotate(*, cell: CellOptions = NO_CELL_OPTIONS) -> None:
    """Create a new encryption key and encrypt everything with it. The cell may run.

    If the command is interrupted, nothing is lost: run it again. Old keys stay in the key file, so that remaining rows
    and earlier backups can be read; `remuda cell encryption forget` removes one. If REMUDA_ENCRYPTION_KEYS has the
    keys, no key is created: put a new key first in that variable, restart the cell's processes, then run this command.

    Try:

        remuda cell encryption rotate --data /var/lib/remuda
    """
    from remuda.cell.operations.encryption_keys import rotate_encryption_key

    key, changed = event_loop.run(rotate_encryption_key(cell.settings()))
    print(f"key {key} encrypts now; {changed} rows were encrypted with it")


def forget(
    key: Annotated[str, Parameter(help="Id of the key, as `remuda cell encryption list` prints it.")],
    *,
    cell: CellOptions = NO_CELL_OPTIONS,
) -> None:
    """Remove an old encryption key with which nothing is encrypted any more.

    Afterwards, backups that were encrypted with it can be restored only with a copy of the key.

    Try:

        remuda cell encryption forget 3f2a9c10b7de --data /var/lib/remuda
    """
    from remuda.cell.operations.encryption_keys import forget_encryption_key

    event_loop.run(forget_encryption_key(cell.settings(), key))
    print(f"key {key} is removed")


def generate() -> None:
    """Print a new encryption key, for REMUDA_ENCRYPTION_KEYS.

    Try:

        remuda cell encryption generate
    """
    from remuda.cell.operations.encryption_keys import generate_encryption_key

    print(generate_encryption_key())
