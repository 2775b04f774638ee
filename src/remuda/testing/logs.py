"""What the product logs, for a test to read, whatever tests of the same process have set logging to before."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from structlog.testing import capture_logs

from remuda.telemetry.logs import _Settings


@contextmanager
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """All events from here on, of every level; they go nowhere else."""
    level, is_applied = _Settings.level, _Settings.is_applied
    # What was set up and not applied yet would be with the first event, and would take it.
    _Settings.level, _Settings.is_applied = 0, True
    try:
        with capture_logs() as events:
            yield events
    finally:
        _Settings.level, _Settings.is_applied = level, is_applied
