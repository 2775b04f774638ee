"""Runs one standard step by its name: `python -m remuda.stdsteps NAME`; or one of PROGRAMS, such as `container_exec`,
with arguments: `python -m remuda.stdsteps PROGRAM ARGUMENT...`."""

import importlib
import sys
from types import ModuleType

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.inputs import read_inputs
from remuda.stdsteps.common.log import say

STEPS = {
    "checkout": "checkout.step",
    "cache_restore": "cache_restore.step",
    "cache_save": "cache_save.step",
    "artifacts_download": "artifacts_download.step",
    "artifacts_upload": "artifacts_upload.step",
    "sign": "sign.step",
    "verify": "verify.step",
    "secrets": "secrets.step",
    "container_open": "container.open",
    "container_close": "container.close",
    "container_pause": "container.pause",
    "service": "service.step",
    "service_stop": "service_stop.step",
    "custom_open": "custom.open",
    "custom_close": "custom.close",
    "oci_build": "function.oci.build.step",
    "oci_publish": "function.oci.publish.step",
}
"""The module of each standard step, below `remuda.stdsteps`. It has a function `run`."""
PROGRAMS = {
    "container_exec": "container.exec",
    "container_shell": "container.shell",
    "custom_exec": "custom.exec",
}
"""The module of each program that takes arguments. It has a function `main`."""
USUAL = ("checkout", "cache_restore", "cache_save", "artifacts_download", "artifacts_upload")
"""Steps that nearly every job has. The others are imported when they run."""


def import_step(name: str) -> ModuleType:
    return importlib.import_module(f"remuda.stdsteps.{(STEPS | PROGRAMS)[name]}")


def load() -> None:
    """Import the most used steps and codecs in advance, so that a process that runs many steps starts each faster."""
    for step in USUAL:
        import_step(step)
    for codec in ("encodings.idna", "encodings.cp437"):
        importlib.import_module(codec)


def main(arguments: list[str]) -> int:
    try:
        if arguments and arguments[0] in PROGRAMS:
            code: int = import_step(arguments[0]).main(arguments[1:])
            return code
        if len(arguments) != 1 or arguments[0] not in STEPS:
            raise StepError(f"the name of one step is required: {', '.join(STEPS)}")
        import_step(arguments[0]).run(read_inputs())
    except StepError as error:
        say(f"ERROR: {error}")
        return error.exit_code
    except OSError as error:
        say(f"ERROR: {error}")
        return PlatformError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
