"""Writes the outputs of a standard step to the file that REMUDA_OUTPUTS names: lines of `{"name": ..., "value": ...}`.
If several lines have the same name, the last one counts. The job can replace the file by a link or a pipe, and the step
may have more rights than the job, so links are not followed, and opening a pipe does not block."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError

_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_outputs(**values: Any) -> None:
    path = os.environ.get("REMUDA_OUTPUTS")
    if path:
        append_lines(path, [json.dumps({"name": name, "value": value}).encode() for name, value in values.items()])


def append_lines(path: str, lines: list[bytes]) -> None:
    """Append lines to a file of the step runner. Raises StepError if it cannot be opened or is not a regular file."""
    try:
        file = os.open(path, _APPENDING, 0o600)
    except OSError as error:
        raise StepError(f"cannot write {path}, which must be a regular file: {error.strerror}") from None
    with open(file, "ab") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise StepError(f"cannot write {path}, which must be a regular file")
        opened.write(b"".join(line + b"\n" for line in lines))


def report_platform_failure(error: PlatformError) -> None:
    """Write a failure of the platform to the file that REMUDA_FAILURE names, which jobs cannot write. It is for
    programs that exit with the code of the job's command: their exit code cannot report such a failure."""
    if path := os.environ.get("REMUDA_FAILURE"):
        Path(path).write_text(json.dumps({"fault": "platform", "error": str(error)}))
