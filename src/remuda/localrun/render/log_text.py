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
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?$")
_COLOURS = re.compile(r"\x1b\[[0-?]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
LONGEST_LINE = 2000
"""Longest line of a tail: a terminal takes long to show a longer one."""


class LogText:
    """Converts the bytes of one log to text. The bytes may come in pieces of any size. `is_plain`: without colours and
    other control sequences, also if a continued line splits one; what a line overwrites (`\\r`) is left out."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self._rest = b""
        self._begun = False
        self._is_plain = is_plain
        self._unfinished = ""
        """The beginning of a control sequence at the end of the last line; the line may be continued."""
        self._is_overwritten = False
        """The last line ended with a carriage return: what continues it replaces it."""

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
        decoded = text.decode(errors="replace")
        return self._without_controls(decoded, joint, continues=continues) if self._is_plain else joint + decoded

    def _without_controls(self, line: str, joint: str, *, continues: bool) -> str:
        if continues:
            line = self._unfinished + line
        shown, self._unfinished = line, ""
        if cut := _UNFINISHED.search(line):
            shown, self._unfinished = line[: cut.start()], cut[0]
        text = shown.rstrip("\r").rpartition("\r")[2]
        if continues and text and (self._is_overwritten or text != shown.rstrip("\r")):
            # What is overwritten was returned already, so the new text gets a line of its own.
            joint = "\n"
        self._is_overwritten = shown.endswith("\r") or (continues and self._is_overwritten and not text)
        return joint + without_escapes(text)


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
