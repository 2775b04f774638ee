"""Creates the span exporter if the environment asks for spans (OTEL_EXPORTER_OTLP_*).

It stands alone, so that a manager without spans does not import `spans.py` and its dependencies.
"""

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
    """None: no spans are wanted, or the settings are wrong (logged)."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return None
    from remuda.manager.metrics.spans import find_exporter
    from remuda.telemetry.otlp_settings import is_enabled

    return find_exporter(os.environ, clock, count, own_id=own_id) if is_enabled(os.environ) else None


def spans_factory(exporter: "SpanExporter | None") -> "Callable[[JobRow, JobPayload], JobSpans] | None":
    """A function that creates the spans of a job; None: no spans are wanted."""
    if exporter is None:
        return None
    from remuda.manager.metrics.spans import JobSpans

    return partial(JobSpans, offer=exporter.offer)
