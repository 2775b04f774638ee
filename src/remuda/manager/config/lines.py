"""Finds the line numbers of the keys in a `config.toml`. tomllib does not report positions, so the text is scanned.
Keys of an inline table have the line of that table."""

import re
from collections.abc import Mapping

_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\]\[]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_PART = re.compile(r"[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'")
_TOKEN = re.compile(r"\"\"\"|'''|\"(?:[^\"\\]|\\.)*\"|'[^']*'|#.*|[\[\]{}]")
_PLACE = re.compile(r"[A-Za-z0-9_+.\[\]-]+")
_NUMBERED = re.compile(r"\[\d+\]$")

Lines = Mapping[str, int]
"""The line of every key and section, such as `runners[0].docker.image`."""


def find_lines(text: str) -> Lines:
    """Return the line numbers of all keys and sections of a text, which must be valid TOML."""
    lines: dict[str, int] = {}
    arrays: dict[str, int] = {}
    section, depth, until = "", 0, ""
    for number, line in enumerate(text.split("\n"), start=1):
        rest = line
        if not depth and not until:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header is not None:
                section = _section(_PART.findall(header[2]), arrays, is_array=header[1] == "[[")
                for end in [index for index, letter in enumerate(section) if letter == "."] + [len(section)]:
                    lines.setdefault(section[:end], number)
                if header[1] == "[[":
                    lines.setdefault(_NUMBERED.sub("", section), number)
                continue
            if key is None:
                continue
            names = [part.strip("\"'") for part in _PART.findall(key[1])]
            lines.setdefault(".".join([*([section] if section else []), *names]), number)
            rest = line[key.end() :]
        depth, until = _scan_line(rest, depth, until)
    return lines


def line_of_message(message: str, lines: Lines) -> int | None:
    """Return the line of the key with which a message begins (see `line_of`); None if it begins with no key."""
    place = _PLACE.match(message)
    return line_of(place[0], lines) if place is not None else None


def line_of(where: str, lines: Lines) -> int | None:
    """Return the line of the key `where`, or of the nearest section around it; None if there is neither."""
    while where:
        where = where.rstrip(".")
        if where in lines:
            return lines[where]
        where = _NUMBERED.sub("", where) if _NUMBERED.search(where) else where.rpartition(".")[0]
    return None


def _section(parts: list[str], arrays: dict[str, int], *, is_array: bool) -> str:
    """Return a section's name, such as `runners[0].docker`. `arrays` has the index of each `[[...]]`, updated here."""
    name = ""
    for index, part in enumerate(parts):
        name = f"{name}.{part.strip(chr(34) + chr(39))}" if name else part.strip("\"'")
        if is_array and index == len(parts) - 1:
            arrays[name] = arrays.get(name, -1) + 1
        if name in arrays:
            name = f"{name}[{arrays[name]}]"
    return name


def _scan_line(text: str, depth: int, until: str) -> tuple[int, str]:
    """Return the state after the line `text`, from the state before it: the number of open brackets, and the delimiter
    of an open multi-line string (empty: none is open)."""
    position = 0
    while position < len(text):
        if until:
            end = text.find(until, position)
            if end < 0:
                return depth, until
            position, until = end + len(until), ""
            continue
        token = _TOKEN.search(text, position)
        if token is None:
            break
        position = token.end()
        if token[0] in ('"""', "'''"):
            until = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth = max(depth - 1, 0)
    return depth, until
