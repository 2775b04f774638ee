"""Parses sizes such as `512m` or `2g`, and formats sizes for the log. No I/O."""

import re

from remuda.stdsteps.common.errors import StepError

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([bkmgt]?)(?:i?b)?", re.IGNORECASE)


def parse_size(text: str, name: str) -> int:
    """Parse a size such as `512m` and return it in bytes; 0 for an empty text. Raises StepError if the text is not a
    size; `name` is the input's name in the message."""
    match = _SIZE.fullmatch(text.strip()) if text.strip() else None
    if match is None:
        if not text.strip():
            return 0
        raise StepError(f"{name}: {text!r} is not a size; write a number of bytes, or a size such as 512m or 2g")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_size(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
