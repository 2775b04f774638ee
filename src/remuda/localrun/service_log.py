"""A log stream for services that run inside a command: writes all entries to a file, and shows errors on the screen,
because a run whose services cannot continue (a full disk, for example) would wait silently."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, cast


def service_log(file: TextIO, say: Callable[[str], None]) -> TextIO:
    """Return a stream for JSON log lines. `file` gets all; `say`, which informs the user, each error once."""
    return cast("TextIO", _ServiceLog(file, say))


class _ServiceLog:
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
