"""Captures log events in tests, whatever the logging configuration of the process."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog.testing

from remuda.telemetry.logs import _Settings


@contextmanager
def capture_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Collect the log events of all levels in a list, instead of writing them."""
    level, is_applied = _Settings.level, _Settings.is_applied
    # A pending configuration would be applied with the first event and would consume it.
    _Settings.level, _Settings.is_applied = 0, True
    try:
        with structlog.testing.capture_logs() as events:
            yield events
    finally:
        _Settings.level, _Settings.is_applied = level, is_applied
