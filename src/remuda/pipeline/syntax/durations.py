"""Parses GitLab's durations: "1h 30m", "90 minutes", "2 weeks and 3 days", "1:30:00", "3600" (seconds).

A month has 30 days and a year 365.25, as in GitLab. Number words ("one hour") are not supported."""

from __future__ import annotations

import re

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS = {
    "s sec secs second seconds": 1,
    "m min mins minute minutes": _MINUTE,
    "h hr hrs hour hours": _HOUR,
    "d dy day days": _DAY,
    "w wk wks week weeks": 7 * _DAY,
    "mo mos mon month months": 30 * _DAY,
    "y yr yrs year years": 31_557_600,
}
_SECONDS = {unit: seconds for units, seconds in _UNITS.items() for unit in units.split()}

# Numbers have at most 9 digits; `_LONGEST_SECONDS` limits the result.
_TERM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)(?:\s*,\s*|\s+and\s+|\s*)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})", re.ASCII)
_PLAIN = re.compile(r"\d{1,9}", re.ASCII)
_LONGEST_SECONDS = 100 * 31_557_600


def parse_duration(text: str) -> int | None:
    """Return whole seconds; None if the text is not a duration, or longer than a hundred years."""
    words = text.strip().lower()
    if _PLAIN.fullmatch(words):
        seconds = float(words)
    elif clock := _CLOCK.fullmatch(words):
        hours, minutes, rest = (int(part or 0) for part in clock.groups())
        seconds = hours * _HOUR + minutes * _MINUTE + rest
    else:
        seconds, index = 0.0, 0
        while index < len(words):
            term = _TERM.match(words, index)
            if term is None or term[2] not in _SECONDS:
                return None
            seconds += float(term[1]) * _SECONDS[term[2]]
            index = term.end()
        if index == 0 or words.endswith(","):
            return None
    return int(seconds) if seconds <= _LONGEST_SECONDS else None
