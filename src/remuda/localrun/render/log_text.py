"""Converts a job's log to readable text: without timestamps and section markers, with split lines joined. Pure. A line
with a timestamp begins with a header of 32 bytes: time, number of the stream, `O` (stdout) or `E` (stderr), and a
space, or `+` if the line continues the one before it. In logs of older runners lines have no header."""

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
"""Longest line of a tail: a terminal takes long to show a longer one."""


class LogText:
    """Converts the bytes of one log to text. The bytes may come in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> str:
        """Return the text of the lines that these bytes complete. The line break after a line is returned with the next
        line, because a continuation may follow."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return "".join(self._line_text(line) for line in lines)

    def finish(self) -> str:
        """Return the rest of the text; call it after the last `feed`."""
        text = self._line_text(self._rest) if self._rest else ""
        self._rest = b""
        return text + "\n" if self._begun else text

    def _line_text(self, line: bytes) -> str:
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
    """Return the last lines (None: all) of a log as a terminal shows them: with colours, without cursor movements."""
    text = LogText()
    whole = text.feed(data) + text.finish()
    return [final_text(line) for line in deque(whole.removesuffix("\n").split("\n"), maxlen=lines) if whole]


def final_text(line: str) -> str:
    """Return a line as a terminal shows it in the end: with colours, without cursor movements, cut if very long."""
    # A progress bar overwrites itself; what it wrote last stays.
    line = line.rstrip("\r").rpartition("\r")[2]
    line = _CONTROLS.sub("", _COMMANDS.sub("", line))
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}... ({len(line)} characters)"


def without_escapes(line: str) -> str:
    """Remove colours, cursor movements and other control sequences from a line."""
    return _CONTROLS.sub("", _COLOURS.sub("", _COMMANDS.sub("", line))).replace("\x1b", "")
