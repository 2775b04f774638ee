"""Parsing and formatting of durations in configuration files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0),
        ("0", 0),
        ("90", 90),
        (90, 90),
        (1.5, 1.5),
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("20m0s", 1200),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("7d", 604800),
        (" 2h ", 7200),
    ],
)
def test_durations_are_parsed(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["soon", "-5s", "5 m", "5x", "m5", "1h30", "5mm", "1,5h", "٣s", -1])
def test_invalid_durations_are_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"not a duration|below 0"):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_a_formatted_duration_can_be_parsed(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds
