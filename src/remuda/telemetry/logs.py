"""How the services log: for people on a terminal, one JSON object a line otherwise.

Every line that concerns a job carries `job`, every line of a service `part`. Secrets never reach a logger.
"""

import logging
import sys
from typing import Any, TextIO

import structlog

LEVELS = ("debug", "info", "warning", "error")


def configure(*, level: str = "info", log_format: str = "auto", stream: TextIO | None = None) -> None:
    """Set logging up for the whole process; `log_format` is text, json or auto (text on a terminal)."""
    out = stream or sys.stderr
    as_text = log_format == "text" or (log_format == "auto" and out.isatty())
    number = logging.getLevelNamesMapping().get({"warn": "warning"}.get(level, level).upper(), logging.INFO)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty()) if as_text else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def logger(part: str) -> Any:
    """The logger of a part: cell, manager, run ... It follows `configure`, whichever of the two comes first."""
    return structlog.get_logger(part=part)
