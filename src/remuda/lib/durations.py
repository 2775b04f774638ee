"""Durations in configuration files: `30m`, `1h30m`, `90s`, `500ms`; a plain number is seconds. Pure.

The format is Go's plus days (`7d`). Pipeline files have another, see `remuda.pipeline.syntax.durations`."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


def parse_duration(value: str | float) -> float:
    """Parse a duration into seconds; an empty text is 0. Raises ValueError if it is negative or not a duration."""
    if not isinstance(value, str):
        if value < 0:
            raise ValueError(f"{value} is below 0")
        return float(value)
    text = value.strip()
    if not text:
        return 0.0
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = list(_PART.finditer(text))
    if "".join(part[0] for part in parts) != text:
        raise ValueError(f"{value!r} is not a duration; write one like 90s, 30m or 1h30m")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def format_duration(seconds: float) -> str:
    if seconds != int(seconds):
        return f"{seconds:g}s"
    rest, words = int(seconds), ""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"
