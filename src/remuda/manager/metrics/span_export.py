"""Creates the exporter for OpenTelemetry spans if environment variables (OTEL_EXPORTER_OTLP_*) enable it. A manager
without spans must not import `spans.py` with its dependencies, so this is its own module."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from remuda.lib.clock import Clock
from remuda.manager.core.record import JobRow

if TYPE_CHECKING:
    from remuda.manager.metrics.spans import JobSpans
    from remuda.telemetry.otlp import SpanExporter
    from remuda.wire.runner_api import JobPayload


def exporter_of(clock: Clock, own_id: str, count: Callable[[str, int], None]) -> "SpanExporter | None":
    """Return the exporter for spans that environment variables configure; None if they are missing, or invalid
    (logged). `own_id` is the manager's system id; `count` gets what happened to spans, such as sent, and how many."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return None
    from remuda.manager.metrics.spans import find_exporter
    from remuda.telemetry.otlp_settings import is_enabled

    return find_exporter(os.environ, clock, count, own_id=own_id) if is_enabled(os.environ) else None


def spans_factory(exporter: "SpanExporter | None") -> "Callable[[JobRow, JobPayload], JobSpans] | None":
    if exporter is None:
        return None
    from remuda.manager.metrics.spans import JobSpans

    return partial(JobSpans, offer=exporter.offer)
