"""What a step told of its work: lines of `{"name": ..., "value": ...}` in a file of its own.

Read once, when the step has succeeded, and then part of its result. A step can write anything there, so whatever is
not such a line is passed over, and so is everything behind the limit. Texts are masked like the log.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.steps.definition import NAME

LARGEST_BYTES = 64 * 1024


def read_outputs(path: Path, mask: Callable[[str], str]) -> dict[str, str | int | bool]:
    """Names and values; the last of a name counts."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES)
    except FileNotFoundError:
        return {}
    found: dict[str, str | int | bool] = {}
    for line in data.splitlines():
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str) or not NAME.fullmatch(name):
            continue
        value = entry.get("value")
        if isinstance(value, str):
            found[name] = mask(value)
        elif isinstance(value, bool | int):
            found[name] = value
    return found
