"""`remuda open`: opens the web pages of a cell in the browser of this machine, signed in by a link that works once."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress


def open_pages(
    *,
    print_only: Annotated[
        bool, Parameter(name="--print", help="Only print the link, for a browser on another machine.", negative=())
    ] = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Open the web pages of a cell in a browser, signed in as you.

    Creates a link that signs you in once, within 15 minutes, and opens it. The session ends with the token that
    `remuda login` has stored, and is listed on the page "Sessions and tokens". Whoever has the link can use it in your
    place: do not send it to others.

    Try:

        remuda open
        remuda open --print
        remuda open --profile work
    """
    link = cell.ask(lambda client: client.create_sign_in_link())
    if print_only or not open_link(link):
        print(link)


def open_link(link: str) -> bool:
    """Open a sign-in link in the browser of this machine. Returns False, after a message, if it cannot be opened or is
    empty, because the cell serves no web pages."""
    if not link:
        print("remuda: nothing to open: this cell serves no web pages (web.enabled is false)", file=sys.stderr)
        return False
    if not _has_browser() or not _open(link):
        print(
            "remuda: there is no browser on this machine that can be opened; open the link yourself, or set BROWSER",
            file=sys.stderr,
            flush=True,
        )
        return False
    return True


def _has_browser() -> bool:
    """False on a machine without a screen: a browser in the terminal would get in the way of this program."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def _open(link: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
