"""Parses GitLab's durations: "1h 30m", "90 minutes", "one and a half hours", "1:30:00", "3600" (seconds).

A month has 30 days and a year 365.25, as in GitLab. A number without a unit at the end counts seconds, a unit at the
beginning without a number counts once ("day")."""

from __future__ import annotations

import re

_MINUTE, _HOUR, _DAY, _MONTH, _YEAR = 60, 3600, 86_400, 30 * 86_400, 31_557_600
_UNITS = {
    "s sec secs second seconds": 1,
    "m min mins minute minutes": _MINUTE,
    "h hr hrs hour hours": _HOUR,
    "d dy day days": _DAY,
    "w wk wks week weeks": 7 * _DAY,
    "mo mos mon month months": _MONTH,
    "y yr yrs year years": _YEAR,
}
_SECONDS = {unit: seconds for units, seconds in _UNITS.items() for unit in units.split()}
_JOINING = ("and", "with", "plus")
_CLOCK_UNITS = (1, _MINUTE, _HOUR, _DAY, _MONTH, _YEAR)

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {
    **{word: number for number, word in enumerate(_SMALL.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), 2)},
    "a": 1,
    "an": 1,
}

# Numbers have at most 9 digits; `_LONGEST_SECONDS` limits the result.
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?|\.\d{1,9}", re.ASCII)
_WORD = re.compile(rf"\s*({_NUMBER.pattern}|[a-z]+)(?:\s*,|-(?=[a-z]))?", re.ASCII)
_CLOCK = re.compile(rf"(?:{_NUMBER.pattern})(?::(?:{_NUMBER.pattern}))+", re.ASCII)
_HALF = re.compile(r"\ba half\b", re.ASCII)
_LONGEST_TEXT = 200
_LONGEST_SECONDS = 100 * _YEAR


def parse_duration(text: str) -> int | None:
    """Return whole seconds; None if the text is not a duration, or longer than a hundred years."""
    text = text.strip().lower()
    if len(text) > _LONGEST_TEXT:
        return None
    if _CLOCK.fullmatch(clock := text.replace(" ", "")):
        numbers = [float(number) for number in reversed(clock.split(":"))]
        if len(numbers) > len(_CLOCK_UNITS):
            return None
        seconds = sum(number * unit for number, unit in zip(numbers, _CLOCK_UNITS, strict=False))
    else:
        terms = _read_terms(_split(_HALF.sub("half", text)))
        if not terms:
            return None
        seconds = _add_up(terms)
    return int(seconds) if seconds <= _LONGEST_SECONDS else None


def _split(text: str) -> list[str]:
    """Split the text into numbers and words; empty if it has anything else."""
    words: list[str] = []
    index = 0
    while index < len(text):
        match = _WORD.match(text, index)
        if match is None:
            return []
        words.append(match[1])
        index = match.end()
    return words


def _read_terms(words: list[str]) -> list[float | str]:
    """Return the numbers and units; number words become numbers ("twenty five" 25). Empty if a word is unknown."""
    terms: list[float | str] = []
    above = below = 0  # the thousands of the current number word, and what is below them
    is_counting = False
    for word in (*words, ""):
        if word in _NUMBERS:
            below += _NUMBERS[word]
        elif word == "hundred":
            below = (below or 1) * 100
        elif word == "thousand":
            above, below = (above + below or 1) * 1000, 0
        elif not (is_counting and word == "and"):
            if is_counting:
                terms.append(float(above + below))
                above = below = 0
                is_counting = False
            if word == "half" and terms and isinstance(terms[-1], float):
                terms[-1] += 0.5
            elif word in _SECONDS:
                terms.append(word)
            elif _NUMBER.fullmatch(word):
                terms.append(float(word))
            elif word and word not in _JOINING:
                return []
            continue
        is_counting = True
    return terms


def _add_up(terms: list[float | str]) -> float:
    """Return the seconds of numbers and their units, such as `[1.0, "h", 30.0]`."""
    if isinstance(terms[0], str):
        terms = [1.0, *terms]
    seconds = 0.0
    for index, term in enumerate(terms):
        if isinstance(term, str):
            continue
        unit = terms[index + 1] if index + 1 < len(terms) else "seconds"
        # As in GitLab, a number that another number follows does not count.
        seconds += term * _SECONDS[unit] if isinstance(unit, str) else 0
    return seconds
