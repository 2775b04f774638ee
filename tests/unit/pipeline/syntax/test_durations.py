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
        ("1 mo", 2_592_000),
        ("1h30", 3630),
        ("1h 30", 3630),
        ("2 hours plus 5 minutes", 7500),
        ("1 day with 2 hours", 93_600),
        ("1 day and 2 hours", 93_600),
        ("1:02:03:04", 93_784),
        ("1 : 30", 90),
        ("day", 86_400),
        ("h", 3600),
        ("minute 30 sec", 90),
        (".5 hours", 1800),
        ("one week", 604_800),
        ("two hours", 7200),
        ("Three Days and four minutes", 259_440),
        ("twenty five minutes", 1500),
        ("twenty-five minutes", 1500),
        ("ninety minutes", 5400),
        ("a day", 86_400),
        ("an hour", 3600),
        ("one hundred and twenty seconds", 120),
        ("two hundred hours", 720_000),
        ("one thousand five hundred seconds", 1500),
        ("one and a half hours", 5400),
        ("2 and a half days", 216_000),
        ("twenty-one and a half minutes", 1290),
    ],
)
def test_a_duration(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "1 parsec",
        "twoo hours",
        "hundredhours",
        "half an hour",
        "a half",
        "one hour and a half",
        "and",
        "-5m",
        "1h -",
        "1:2:3:4:5:6:7",
        "1e3",
        "9999 years",
        "9" * 5000,
        "٣ h",
    ],
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
