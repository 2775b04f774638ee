"""What a plugin writes, as lines of our log: which level, which text, which values. Pure.

Go plugins write hclog's JSON to stderr, and so does the SDK; others write what they like. A plugin that writes without
end costs a bounded piece of memory and no more than `MOST_LINES` lines of log a second; what was left out is counted.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from remuda.lib.dataclass import dataclass

LONGEST_BYTES = 64 * 1024
MOST_LINES = 200
"""Lines a second."""
_LEVELS = {"trace": "debug", "debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_PREFIXES = {f"[{name.upper()}]": level for name, level in _LEVELS.items()}
_PANICS = ("panic: ", "fatal error: ")
_MOST_VALUES = 20
_LAST_LINES = 5
_LAST_BYTES = 300
_FRAME = re.compile(r"\s(\S+\.go:\d+)( \+0x[0-9a-f]+)?")
_LIBRARY = re.compile(r"/pkg/mod/|@v|/vendor/|/go[^/]*/src/[^./]+/|^runtime/")
"""Of Go: modules that were fetched, and what comes with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a plugin for our log."""

    level: str
    text: str
    values: dict[str, Any]


class Splitter:
    """Bytes to lines; a line that is too long comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that are whole now; no data: what is left."""
        *lines, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        while len(self._rest) > LONGEST_BYTES:
            lines.append(self._rest[:LONGEST_BYTES])
            self._rest = self._rest[LONGEST_BYTES:]
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            if text:
                yield text


class Reader:
    """Lines to what is logged. It remembers that a Go program panics: all that follows is an error."""

    def __init__(self) -> None:
        self._is_panicking = False

    def read(self, text: str) -> Line:
        logged = _logged(text)
        if logged is not None:
            return logged
        self._is_panicking = self._is_panicking or text.startswith(_PANICS)
        prefix, _, rest = text.partition(" ")
        level = "error" if self._is_panicking else _PREFIXES.get(prefix)
        return Line(level=level or "debug", text=rest if prefix in _PREFIXES else text, values={})


class LastWords:
    """What is worth telling of a program that has ended: its last lines; of one in Go that panicked why, and in which
    line of its author's, after which come many lines about libraries."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._panic = ""
        self._frame = ""

    def hear(self, text: str, line: Line) -> None:
        """A line as it came, and as it was read."""
        if self._panic:
            found = _FRAME.fullmatch(text)
            if found and not self._frame and not _LIBRARY.search(found[1]):
                self._frame = found[1]
        elif text.startswith(_PANICS):
            self._panic = text[:_LAST_BYTES]
        else:
            first, *more = line.text.splitlines() or [""]
            # Of a traceback it is the end that says why.
            said = f"{first} ... {more[-1]}" if more else first
            self._lines = [*self._lines[1 - _LAST_LINES :], said[:_LAST_BYTES]]

    @property
    def lines(self) -> list[str]:
        return [one for one in (self._panic, self._frame) if one] or self._lines


class Gate:
    """How many lines of a second pass. Time comes in."""

    def __init__(self) -> None:
        self._second = -1
        self._passed = 0
        self._left_out = 0

    def passes(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._passed = int(now), 0
        self._passed += 1
        self._left_out += self._passed > MOST_LINES
        return self._passed <= MOST_LINES

    def left_out(self) -> int:
        """Lines that did not pass since this was last asked."""
        count, self._left_out = self._left_out, 0
        return count


def _logged(text: str) -> Line | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    level = _LEVELS.get(str(found.get("@level")))
    if level is None:
        return None
    values = {name: value for name, value in list(found.items())[:_MOST_VALUES] if not name.startswith("@")}
    return Line(level=level, text=str(found.get("@message", "")), values=values)
