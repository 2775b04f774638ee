from datetime import UTC, datetime

import pytest
from starlette.datastructures import QueryParams

from remuda.cell.web.formatting import format_duration, format_size, format_time, with_page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (7505, "2 h 5 min"),
        (86400 + 60, "1 d"),
        (-3, "0.0 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, ""), (0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (3 * 1024**5, "3072.0 TiB")]
)
def test_sizes(size: float | None, text: str) -> None:
    assert format_size(size) == text


def test_times() -> None:
    moment = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)
    assert format_time("2026-03-01T12:30:15.123Z") == (
        '<time datetime="2026-03-01T12:30:15+00:00">2026-03-01 12:30</time>'
    )
    assert moment.timestamp() == datetime.fromisoformat(format_time(moment.timestamp()).split('"')[1]).timestamp()
    assert format_time(None) == format_time("") == ""


def test_another_page_of_a_list_keeps_the_filters() -> None:
    assert with_page(QueryParams("status=failed&ref=a%26b&page=3"), 4) == "status=failed&ref=a%26b&page=4"
