"""How an option is described: cyclopts' `Parameter`, or nothing where a command is called without any arguments.

To import cyclopts takes longer than `remuda run` needs for a job, and a command line of nothing but a command's name
has no options to read. `main` says so before it imports the command; everybody else gets the real thing. Imported by
the modules of such commands, and by no others.
"""

from typing import TYPE_CHECKING, Any

from remuda.cli import parse_mode

if TYPE_CHECKING or parse_mode.options_are_read:
    from cyclopts import Parameter as Parameter
else:

    class Parameter:
        """Describes an option that nobody reads."""

        def __init__(self, **_: Any) -> None:
            pass

        def __call__(self, described: Any) -> Any:
            """As a decorator."""
            return described
