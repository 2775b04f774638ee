"""`remuda cell keys list|rotate`: manage the keys that sign a cell's tokens."""

import time
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.cli.options import Output
from remuda.cli.render.listing import print_json
from remuda.lib import event_loop
from remuda.lib.exits import BadInputError


def list_keys(*, cell: CellOptions = NO_CELL_OPTIONS, output: Output = "text") -> None:
    """List the keys that sign tokens, with their purpose.

    Try:

        remuda cell keys list --data /var/lib/remuda
        remuda cell keys list --data /var/lib/remuda --output json
    """
    from remuda.cell.operations.signing_keys import list_signing_keys

    keys = event_loop.run(list_signing_keys(cell.settings()))
    if output == "json":
        print_json([{"name": key.name, "for": key.purpose, "signs": key.signs} for key in keys])
        return
    for key in keys:
        print(f"{key.name:<34} {key.purpose:<16} {'signs' if key.signs else 'still accepted'}")


def rotate(
    *,
    job_tokens: Annotated[bool, Parameter(help="Rotate the key that signs job tokens.", negative="")] = False,
    at_once: Annotated[
        bool,
        Parameter(help="Invalidate job tokens of older keys now. Running jobs fail.", negative=""),
    ] = False,
    cell: CellOptions = NO_CELL_OPTIONS,
) -> None:
    """Create a new key and use it from now on. The cell may run; all its processes use the new key within seconds.

    Job tokens of the old key are valid until their jobs have ended. The cell removes the old key after a day at the
    earliest. If the old key was stolen, use --at-once to remove it now.

    Try:

        remuda cell keys rotate --job-tokens --data /var/lib/remuda
        remuda cell keys rotate --job-tokens --at-once --data /var/lib/remuda
    """
    if not job_tokens:
        raise BadInputError("which key? Give --job-tokens")
    from remuda.cell.operations.signing_keys import rotate_job_token_key

    kid = event_loop.run(rotate_job_token_key(cell.settings(), now=time.time(), at_once=at_once))
    print(f"{kid} signs job tokens now")
