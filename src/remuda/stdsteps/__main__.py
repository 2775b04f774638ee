"""Runs one standard step by its name: `python -m remuda.stdsteps NAME`.

Beside the steps there are programs that the step runner starts with words of their own: `PROGRAM WORD...`.
"""

import importlib
import sys

from remuda.stdsteps.errors import PlatformError, StepError
from remuda.stdsteps.inputs import read_inputs
from remuda.stdsteps.speech import say

NAMES = (
    "checkout",
    "cache_restore",
    "cache_save",
    "artifacts_download",
    "artifacts_upload",
    "sign",
    "verify",
    "secrets",
    "container_open",
    "container_close",
    "container_pause",
    "service",
    "service_stop",
    "custom_open",
    "custom_close",
)
PROGRAMS = ("container_exec", "container_shell", "custom_exec")
USUAL = ("checkout", "cache_restore", "cache_save", "artifacts_download", "artifacts_upload")
"""What nearly every job has; each of the others imports what it needs when it runs."""


def load() -> None:
    """Import the usual steps, for a process that is going to run many, and what Python imports at the first need."""
    for name in (*(f"remuda.stdsteps.{step}" for step in USUAL), "encodings.idna", "encodings.cp437"):
        importlib.import_module(name)


def main(arguments: list[str]) -> int:
    """The step's exit code."""
    try:
        if arguments and arguments[0] in PROGRAMS:
            code: int = importlib.import_module(f"remuda.stdsteps.{arguments[0]}").main(arguments[1:])
            return code
        if len(arguments) != 1 or arguments[0] not in NAMES:
            raise StepError(f"give the name of one step: {', '.join(NAMES)}")
        module = importlib.import_module(f"remuda.stdsteps.{arguments[0]}")
        module.run(read_inputs())
    except StepError as error:
        say(f"ERROR: {error}")
        return error.exit_code
    except OSError as error:
        say(f"ERROR: {error}")
        return PlatformError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
