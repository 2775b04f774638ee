"""Converts the output of a plugin to lines for the host's log: level, text, values. Pure.

Go plugins and Remuda's SDK write hclog's JSON to stderr; others write plain text. Memory is bounded however much a
plugin writes, and at most `MOST_LINES` lines a second go to the log; the rest is counted."""

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
"""Source files of Go's standard library and of modules that were fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    raw: str
    """As the plugin wrote it."""
    level: str
    text: str
    values: dict[str, Any]


class Splitter:
    """Splits bytes into lines. A line longer than `LONGEST_BYTES` is split into several."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Add bytes and yield the complete lines that are not empty. Empty data means the end of the input: the rest is
        a line."""
        *lines, self._rest = (self._rest + data).split(b"\n") if data else (self._rest, b"")
        while len(self._rest) > LONGEST_BYTES:
            lines.append(self._rest[:LONGEST_BYTES])
            self._rest = self._rest[LONGEST_BYTES:]
        for line in lines:
            text = line.decode(errors="replace").rstrip()
            if text:
                yield text


class Reader:
    """Parses lines and finds the level of each. Plain lines after the start of a Go panic are errors."""

    def __init__(self) -> None:
        self._is_panicking = False

    def read(self, raw: str) -> Line:
        logged = _read_hclog(raw)
        if logged is not None:
            return logged
        self._is_panicking = self._is_panicking or raw.startswith(_PANICS)
        prefix, _, rest = raw.partition(" ")
        level = "error" if self._is_panicking else _PREFIXES.get(prefix)
        return Line(raw=raw, level=level or "debug", text=rest if prefix in _PREFIXES else raw, values={})


class LastWords:
    """Collects why a program ended: its last lines, or a Go panic and its first source line outside of libraries."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._panic = ""
        self._frame = ""

    def add(self, line: Line) -> None:
        if self._panic:
            frame = _FRAME.fullmatch(line.raw)
            if frame and not self._frame and not _LIBRARY.search(frame[1]):
                self._frame = frame[1]
        elif line.raw.startswith(_PANICS):
            self._panic = line.raw[:_LAST_BYTES]
        else:
            first, *more = line.text.splitlines() or [""]
            # The last line of a traceback names the error.
            summary = f"{first} ... {more[-1]}" if more else first
            self._lines = [*self._lines[1 - _LAST_LINES :], summary[:_LAST_BYTES]]

    @property
    def lines(self) -> list[str]:
        return [line for line in (self._panic, self._frame) if line] or self._lines


class RateLimit:
    """Limits log lines to `MOST_LINES` a second, and counts the dropped ones. The caller passes the time."""

    def __init__(self) -> None:
        self._second = -1
        self._lines = 0
        self._dropped = 0

    def allows(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        self._lines += 1
        self._dropped += self._lines > MOST_LINES
        return self._lines <= MOST_LINES

    def take_dropped(self) -> int:
        """The number of lines that were dropped since the last call."""
        count, self._dropped = self._dropped, 0
        return count


def _read_hclog(raw: str) -> Line | None:
    if not raw.startswith("{"):
        return None
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    level = _LEVELS.get(str(entry.get("@level")))
    if level is None:
        return None
    values = {name: value for name, value in list(entry.items())[:_MOST_VALUES] if not name.startswith("@")}
    return Line(raw=raw, level=level, text=str(entry.get("@message", "")), values=values)
