"""Names of time zones: names of the time zone database, cities, and other names of Rails."""

from collections import defaultdict
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest

from remuda.cell.core.pipelines import time_zones
from remuda.cell.core.pipelines.time_zones import time_zone


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("La Paz", "America/La_Paz"),
        ("Pacific Time (US & Canada)", "America/Los_Angeles"),
        ("St. Petersburg", "Europe/Moscow"),
        ("EST5EDT", "EST5EDT"),
    ],
)
def test_known_names(name: str, zone: str) -> None:
    assert time_zone(name) == ZoneInfo(zone)


def test_utc_needs_no_database() -> None:
    assert time_zone("UTC") is UTC


@pytest.mark.parametrize(
    "name", ["", "Atlantis", "Europe", "../../etc/passwd", "/etc/localtime", "berlin ", "a\0b", "ü"]
)
def test_unknown_names(name: str) -> None:
    assert time_zone(name) is None


def test_every_name_of_the_table_is_a_zone() -> None:
    assert not [name for name in time_zones._OTHER_NAMES if time_zone(name) is None]


def test_a_city_name_is_unambiguous() -> None:
    moment, offsets = datetime(2026, 7, 1, tzinfo=UTC), defaultdict(set)
    for zone in available_timezones():
        if zone.startswith(time_zones.CONTINENTS):
            offsets[zone.rpartition("/")[2]].add(moment.astimezone(ZoneInfo(zone)).utcoffset())
    assert not {city: city_offsets for city, city_offsets in offsets.items() if len(city_offsets) > 1}
