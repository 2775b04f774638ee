"""What a standard step tells about its work as data: lines of `{"name": ..., "value": ...}` for the step's result.

The file that REMUDA_OUTPUTS names is the step runner's; without one nothing is told. The last value of a name wins.
It lies where the job can put a link or a pipe in its place, and the step may have more rights than the job: so nothing
is written through the one, and nobody waits for the other.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError

_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tell(**values: Any) -> None:
    """Add outputs to the step's result."""
    path = os.environ.get("REMUDA_OUTPUTS")
    if path:
        add_lines(path, [json.dumps({"name": name, "value": value}).encode() for name, value in values.items()])


def add_lines(path: str, lines: list[bytes]) -> None:
    """Write to a file that the step runner reads."""
    try:
        file = os.open(path, _APPENDING, 0o600)
    except OSError as error:
        raise StepError(f"{path} cannot be written, it has to be a plain file: {error.strerror}") from None
    with open(file, "ab") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise StepError(f"{path} cannot be written, it has to be a plain file")
        opened.write(b"".join(line + b"\n" for line in lines))


def tell_failure(error: PlatformError) -> None:
    """Say that it was the platform, where a command of the job may have ended with any exit code. No job reaches the
    file that REMUDA_FAILURE names."""
    if path := os.environ.get("REMUDA_FAILURE"):
        Path(path).write_text(json.dumps({"fault": "platform", "error": str(error)}))
