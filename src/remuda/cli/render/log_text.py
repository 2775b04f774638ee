"""A job's log as people read it: without line headers and section markers, with artificial line ends undone.

Pure. A stamped line begins with 32 bytes: time, stream, O or E, and a blank, or `+` when it continues the line before
it. Bytes arrive in pieces of any size; `LogText` keeps what is not yet a whole line. `remuda job log` and the log tail
of failed jobs use it. Lines without a header (older runners) pass unchanged.
"""

import re
from collections import deque

_HEADER = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z [0-9a-f]{2}[OE]([ +])")
_SECTION = re.compile(rb"section_(?:start|end):\d+:[^\r\n]*\r(?:\x1b\[0K)?")
_COMMANDS = re.compile(
    r"\x1b[]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, links and other texts for the terminal
    r"|\x1b\[[0-?]*[ -/]*(?![0-?m])[ -~]?"  # cursor movements: all but colours
    r"|\x1b(?!\[)[ -/]*[0-~]?"
)
_COLOURS = re.compile(r"\x1b\[[0-?]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
LONGEST_LINE = 2000
"""Of a tail; nobody reads more, and a terminal takes long to show it."""


class LogText:
    """Turns the bytes of one log, from its beginning, into text."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> str:
        """The text of the lines that these bytes complete. The last line's end is given with the line after it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return "".join(self._shown(line) for line in lines)

    def finish(self) -> str:
        """What is left: a last line without an end, and the end of the one before it."""
        text = self._shown(self._rest) if self._rest else ""
        self._rest = b""
        return text + "\n" if self._begun else text

    def _shown(self, line: bytes) -> str:
        header = _HEADER.match(line)
        continues = header is not None and header[1] == b"+"
        body = line[header.end() :] if header else line
        text = _SECTION.sub(b"", body)
        if not text and text != body:
            return ""
        joint = "\n" if self._begun and not continues else ""
        self._begun = True
        return joint + text.decode(errors="replace")


def tail(data: bytes, lines: int | None) -> list[str]:
    """The last lines of a log, or all, as a terminal would leave them: with colours, and nothing that moves it."""
    text = LogText()
    whole = text.feed(data) + text.finish()
    return [_left_on_screen(line) for line in deque(whole.removesuffix("\n").split("\n"), maxlen=lines) if whole]


def _left_on_screen(line: str) -> str:
    # A progress bar writes over itself; what it wrote last stays.
    line = line.rstrip("\r").rpartition("\r")[2]
    line = _CONTROLS.sub("", _COMMANDS.sub("", line))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line)} characters)"


def without_escapes(line: str) -> str:
    """The line without colours, cursor movements and all else that a terminal would obey."""
    return _CONTROLS.sub("", _COLOURS.sub("", _COMMANDS.sub("", line))).replace("\x1b", "")
