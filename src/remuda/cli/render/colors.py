"""Colours of statuses in lists and messages: only on a terminal, and not under NO_COLOR or TERM=dumb.

A separate module, because commands without tables use it, too."""

import os
from collections.abc import Mapping
from typing import TextIO

_CODES = {"green": "32", "red": "31", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", "dim": "2"}
_STATUSES = {
    "green": ("success", "online", "active", "passed", "true"),
    "red": ("failed", "offline", "blocked", "revoked", "removed", "expired"),
    "yellow": ("pending", "stale", "paused", "preparing", "scheduled", "waiting_for_resource", "archived"),
    "blue": ("manual", "never_contacted"),
    "cyan": ("running", "canceling"),
    "magenta": ("canceled",),
    "dim": ("skipped", "created", "inactive"),
}
_COLOR_OF = {status: color for color, statuses in _STATUSES.items() for status in statuses}


def has_colors(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """True if text for this stream may contain colours. An empty NO_COLOR means that it is not set (no-color.org)."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def color_status(text: str) -> str:
    """Colour a cell of a table that begins with a known status, such as `online, paused`; other text stays as it is."""
    words = text.strip().split(", ")
    color = next((_COLOR_OF[word] for word in reversed(words) if word in _COLOR_OF), None)
    return text if color is None else f"\x1b[{_CODES[color]}m{text}\x1b[0m"
