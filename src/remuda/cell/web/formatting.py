"""Filters of the templates: texts for times, durations and sizes."""

from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from markupsafe import Markup, escape
from starlette.datastructures import QueryParams

_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def format_duration(seconds: float | None) -> str:
    """Format a duration by its two largest units: `2 h 5 min`; empty for None."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    parts: list[str] = []
    rest = int(seconds)
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def format_size(size: float | None) -> str:
    """Format a number of bytes: `1.5 MiB`; empty for None."""
    if size is None:
        return ""
    for unit in _SIZES:
        if size < 1024 or unit == _SIZES[-1]:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def format_time(value: Any) -> Markup:
    """Return a `<time>` element for an RFC 3339 text or seconds since the epoch; empty for None. The script `times.js`
    shows it relative to now, with the exact time as its title."""
    if value is None or value == "":
        return Markup()
    moment = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value).astimezone()
    text = moment.isoformat(timespec="seconds")
    shown = moment.strftime("%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}">{}</time>').format(escape(text), shown)


def with_page(query: QueryParams, page: int) -> str:
    """The query of the present page, for another page of its list."""
    return urlencode([*((name, value) for name, value in query.multi_items() if name != "page"), ("page", str(page))])


def read_seconds(value: str | None) -> float | str:
    """The seconds since the epoch of an RFC 3339 text, for `data-since`; empty for None."""
    return datetime.fromisoformat(value).timestamp() if value else ""


def local_address(url: str) -> str:
    """The address of a page inside the cell, for a `web_url` of the API."""
    return quote(urlsplit(url).path, safe="/%")


def local_path(url: str) -> str:
    """The path of a project, for the beginning of a `web_url` of the API."""
    return urlsplit(url).path.strip("/")


FILTERS = {
    "duration": format_duration,
    "size": format_size,
    "time": format_time,
    "seconds": read_seconds,
    "local": local_address,
    "local_path": local_path,
}
