"""Asks before something is deleted, and reads secrets from the terminal without echo or from stdin."""

import sys
from getpass import getpass
from typing import Annotated

from cyclopts import Parameter

from remuda.lib.exits import BadInputError

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative=(), help="Do not ask. Needed without a terminal.")]


def confirm(what: str, *, yes: bool) -> None:
    """Ask on the terminal whether to do `what`, such as `delete the project root/shop`. Raises BadInputError if the
    answer is not yes, or if nobody can be asked and there is no --yes."""
    if yes:
        return
    from remuda.localrun.settings.answers import can_ask

    if not can_ask():
        raise BadInputError(f"this would {what}; there is no terminal to ask on, so confirm it with --yes")
    print(f"This will {what}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BadInputError("nothing was changed")


def read_secret(prompt: str) -> str:
    """Read a secret without echo from the terminal, or all of stdin without its last line break."""
    if sys.stdin.isatty():
        return getpass(f"{prompt}: ")
    text = sys.stdin.read()
    return text.removesuffix("\n").removesuffix("\r")
