"""Finds time zones by names of the time zone database, and by those of Ruby on Rails that GitLab accepts in
`cron_timezone`: mostly the city without the continent (`Berlin`); `_OTHER_NAMES` has the exceptions."""

from datetime import UTC, tzinfo
from functools import cache

CONTINENTS = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
_OTHER_NAMES = {
    "Abu Dhabi": "Asia/Muscat",
    "Alaska": "America/Juneau",
    "American Samoa": "Pacific/Pago_Pago",
    "Arizona": "America/Phoenix",
    "Astana": "Asia/Almaty",
    "Atlantic Time (Canada)": "America/Halifax",
    "Beijing": "Asia/Shanghai",
    "Bern": "Europe/Zurich",
    "Brasilia": "America/Sao_Paulo",
    "Cape Verde Is.": "Atlantic/Cape_Verde",
    "Central America": "America/Guatemala",
    "Central Time (US & Canada)": "America/Chicago",
    "Chatham Is.": "Pacific/Chatham",
    "Chennai": "Asia/Kolkata",
    "Eastern Time (US & Canada)": "America/New_York",
    "Edinburgh": "Europe/London",
    "Ekaterinburg": "Asia/Yekaterinburg",
    "Georgetown": "America/Guyana",
    "Greenland": "America/Godthab",
    "Guadalajara": "America/Mexico_City",
    "Hanoi": "Asia/Bangkok",
    "Hawaii": "Pacific/Honolulu",
    "Indiana (East)": "America/Indiana/Indianapolis",
    "International Date Line West": "Etc/GMT+12",
    "Islamabad": "Asia/Karachi",
    "Kyiv": "Europe/Kiev",
    "Marshall Is.": "Pacific/Majuro",
    "Mid-Atlantic": "Atlantic/South_Georgia",
    "Midway Island": "Pacific/Midway",
    "Mountain Time (US & Canada)": "America/Denver",
    "Mumbai": "Asia/Kolkata",
    "New Caledonia": "Pacific/Noumea",
    "New Delhi": "Asia/Kolkata",
    "Newfoundland": "America/St_Johns",
    "Nuku'alofa": "Pacific/Tongatapu",
    "Osaka": "Asia/Tokyo",
    "Pacific Time (US & Canada)": "America/Los_Angeles",
    "Pretoria": "Africa/Johannesburg",
    "Quito": "America/Lima",
    "Samoa": "Pacific/Apia",
    "Sapporo": "Asia/Tokyo",
    "Saskatchewan": "America/Regina",
    "Solomon Is.": "Pacific/Guadalcanal",
    "Sri Jayawardenepura": "Asia/Colombo",
    "St. Petersburg": "Europe/Moscow",
    "Tokelau Is.": "Pacific/Fakaofo",
    "Wellington": "Pacific/Auckland",
    "West Central Africa": "Africa/Algiers",
}


def time_zone(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC
    # Imported late, here and below, because few cells have schedules with a time zone.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    for zone in (name, _OTHER_NAMES.get(name) or _by_city().get(name)):
        try:
            if zone:
                return ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return None


@cache
def _by_city() -> dict[str, str]:
    """Return time zones by city, such as `Europe/Berlin` by `Berlin`; of several with one city, the last by name."""
    from zoneinfo import available_timezones

    zones = (zone for zone in sorted(available_timezones()) if zone.startswith(CONTINENTS))
    return {zone.rpartition("/")[2].replace("_", " "): zone for zone in zones}
