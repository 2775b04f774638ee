"""The log stream of embedded services: everything goes to a file, and each kind of error once to the screen.

Without the latter, a run whose services cannot go on (a full disk, for example) would wait silently. Errors of writing
the file are ignored.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, cast


def service_log(file: TextIO, say: Callable[[str], None]) -> TextIO:
    """A stream for `remuda.telemetry.logs`, which writes one JSON object a line."""
    return cast("TextIO", _ServiceLog(file, say))


class _ServiceLog:
    """The methods of a stream that structlog calls."""

    def __init__(self, file: TextIO, say: Callable[[str], None]) -> None:
        self._file = file
        self._say = say
        self._said: set[str] = set()

    def write(self, text: str) -> int:
        if '"level": "error"' in text:
            entry = json.loads(text)
            event = str(entry.get("event", ""))
            if event not in self._said:
                self._said.add(event)
                self._say(f"problem: {event}: {entry['cause']}" if entry.get("cause") else f"problem: {event}")
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()

    def isatty(self) -> bool:
        return False
