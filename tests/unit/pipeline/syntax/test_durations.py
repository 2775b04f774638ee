import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.pipeline.syntax.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3600", 3600),
        ("0", 0),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("90 minutes", 5400),
        ("1 hour, 2 minutes and 3 seconds", 3723),
        ("2 hrs 20 min", 8400),
        ("3 mins 4 sec", 184),
        ("1.5 hours", 5400),
        ("1 week", 604_800),
        ("3 weeks and 2 days", 1_987_200),
        ("6 mos 1 day", 15_638_400),
        ("47 yrs 6 mos and 4d", 1_499_104_800),
        ("1:30", 90),
        ("1:30:00", 5400),
        ("  1 H  ", 3600),
    ],
)
def test_a_duration(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "soon", "1 parsec", "h", "1h 30", "1h and", "1h,", "-5m", "1e3", "9999 years", "9" * 5000, "٣ h"]
)
def test_invalid_durations(text: str) -> None:
    assert parse_duration(text) is None


@given(days=st.integers(0, 999), hours=st.integers(0, 99), minutes=st.integers(0, 99), seconds=st.integers(0, 99))
def test_terms_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(f"{days}d {hours}h{minutes} min and {seconds} seconds") == total


@given(st.text(max_size=40))
def test_any_text_is_a_duration_or_none(text: str) -> None:
    seconds = parse_duration(text)
    assert seconds is None or seconds >= 0
