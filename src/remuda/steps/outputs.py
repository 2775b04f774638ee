"""What a step wrote into its output, export and mask files.

Outputs and exports are lines of `{"name": ..., "value": ...}`, read once, when the step's command has ended well. The
last of a name counts; keys may be written in any case; anything else is a mistake of the step, which then fails.
What outputs may be called is decided by the step's definition (`language.checking`), what exports may be, here.

Masks are lines of text, read whenever the step has printed something, so that a text which was asked for before it was
printed never shows.
"""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from remuda.steps.errors import DefinitionError
from remuda.steps.language.values import NAME

LARGEST_BYTES = 16 * 1024 * 1024
_BLANK = re.compile(rb"\s*")


class OutputError(DefinitionError):
    """What the step wrote cannot be used."""


def read_outputs(path: Path) -> dict[str, Any]:
    """Names and values."""
    return _pairs(path, "output")


def read_exports(path: Path) -> dict[str, str]:
    """Names and texts for the environment of later steps."""
    found: dict[str, str] = {}
    for name, value in _pairs(path, "export").items():
        if not NAME.fullmatch(name):
            raise OutputError(f'export "{name[:100]}": a name of letters, digits and _ is needed')
        found[name] = _export_text(name, value)
    return found


def read_masks(path: Path, offset: int, *, rest: bool = False) -> tuple[list[str], int]:
    """Whole lines from a byte on, and where the next begins; `rest`: an unfinished line counts too."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(LARGEST_BYTES)
    except FileNotFoundError:
        return [], offset
    end = len(data) if rest else data.rfind(b"\n") + 1
    lines = data[:end].decode("utf-8", "surrogateescape").split("\n")
    return [line.rstrip("\r") for line in lines if line.strip()], offset + end


def _export_text(name: str, value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            if "\0" in value:
                raise OutputError(f'export "{name}": its value holds a NUL byte, which no environment can carry')
            return value
        case int():
            return str(value)
        case float():
            return format(Decimal(repr(value)), "f").removesuffix(".0")
    raise OutputError(f'export "{name}": a text, a number or a boolean is needed')


def _pairs(path: Path, word: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OutputError(f"{word} file: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise OutputError(f"{word} file: it has more than {LARGEST_BYTES} bytes")
    found: dict[str, Any] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if _BLANK.fullmatch(line):
            continue
        try:
            entry = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise OutputError(f'{word} file, line {number}: one {{"name": ..., "value": ...}} is needed') from None
        if not isinstance(entry, dict):
            raise OutputError(f'{word} file, line {number}: one {{"name": ..., "value": ...}} is needed')
        entry = {key.lower(): value for key, value in entry.items()}
        name, value = entry.get("name"), entry.get("value")
        if not isinstance(name, str) or not name:
            raise OutputError(f"{word} file, line {number}: a name is needed")
        if value is None:
            raise OutputError(f'{word} file, line {number}: "{name[:100]}" has no value')
        found[name] = value
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)
