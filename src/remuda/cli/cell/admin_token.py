"""`remuda cell admin-token`: creates a new token of the administrator on the cell's machine.

A separate module, because the commands beside it manage keys and data, not tokens."""

import sys
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.lib import event_loop


def admin_token(
    *,
    revoke_others: Annotated[
        bool,
        Parameter(help="Revoke all other tokens of the administrator, for example if one was stolen.", negative=""),
    ] = False,
    cell: CellOptions = NO_CELL_OPTIONS,
) -> None:
    """Create a new token of the administrator and print it, if the old one is lost. The cell may run.

    Run it on the cell's machine, as the user that the cell runs as. Only the token is written to stdout. The audit log
    has a record of it. If REMUDA_ADMIN_TOKEN or admin_token in cell.toml sets a token, --revoke-others revokes that
    one, too: remove it there.

    Try:

        remuda cell admin-token --data /var/lib/remuda
        remuda cell admin-token --data /var/lib/remuda --revoke-others > token
    """
    from remuda.cell.operations.admin_tokens import add_admin_token

    token, revoked = event_loop.run(add_admin_token(cell.settings(), revoke_others=revoke_others))
    if revoke_others:
        print(f"{revoked} other tokens of the administrator are revoked", file=sys.stderr)
    print(token)
