"""Logging of all services: readable text on a terminal, otherwise one JSON object per line.

Every line about a job has the field `job`, every line of a service `part`. Secrets are never passed to a logger. The
logging library is imported only when a line is shown: the import takes as long as a whole short local job."""

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO


class _Settings:
    """Settings of `configure` and callbacks of `notify_of_problems`, one set for the process."""

    level = logging.INFO
    as_text: bool | None = None
    out: TextIO | None = None
    is_applied = False
    observers: dict[str, Callable[[str], None]] = {}  # noqa: RUF012 - one for the process, like the rest


def notify_of_problems(part: str, notify: Callable[[str], None]) -> None:
    """Call `notify` with the level of each warning and error that a program part (cell, manager) logs, even hidden."""
    _Settings.observers[part] = notify


def configure(*, level: str = "info", log_format: str = "auto", stream: TextIO | None = None) -> None:
    """Set logging up for the whole process; `log_format` is text, json or auto (text on a terminal)."""
    out = stream or sys.stderr
    set_level(level)
    _Settings.as_text = log_format == "text" or (log_format == "auto" and out.isatty())
    _Settings.out = out
    _Settings.is_applied = False


def set_level(level: str) -> None:
    _Settings.level = logging.getLevelNamesMapping().get({"warn": "warning"}.get(level, level).upper(), logging.INFO)


def logger(part: str) -> "Logger":
    """Return the logger of a program part, such as cell or manager. May be called before `configure`."""
    return Logger({"part": part})


class Logger:
    """Logs events of one part of the program. The values given to `bind` are added to every event."""

    __slots__ = ("_bound",)

    def __init__(self, bound: dict[str, Any]) -> None:
        self._bound = bound

    def bind(self, **values: Any) -> "Logger":
        return Logger(self._bound | values)

    def debug(self, event: str, **values: Any) -> None:
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: Any) -> None:
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._log(logging.WARNING, event, values)

    def error(self, event: str, **values: Any) -> None:
        self._log(logging.ERROR, event, values)

    def _log(self, level: int, event: str, values: dict[str, Any]) -> None:
        if level >= logging.WARNING and (notify := _Settings.observers.get(self._bound.get("part", ""))) is not None:
            notify("warning" if level == logging.WARNING else "error")
        if level < _Settings.level:
            return
        import structlog

        if not _Settings.is_applied:
            _apply()
        structlog.get_logger(**self._bound).log(level, event, **values)


def _apply() -> None:
    import structlog

    _Settings.is_applied = True
    if _Settings.out is None:
        return
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=_Settings.out.isatty())
        if _Settings.as_text
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        # `Logger` has filtered by level already, because the level may change while the process runs.
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.PrintLoggerFactory(_Settings.out),
        cache_logger_on_first_use=False,
    )
