"""Who makes spans of jobs and sends them, where somebody wants them; what that needs is imported only then."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from remuda.lib.clock import Clock
from remuda.manager.jobs.journal import JobRow

if TYPE_CHECKING:
    from remuda.manager.metrics.spans import JobSpans
    from remuda.telemetry.otlp import SpanExporter
    from remuda.wire.runner_api import JobPayload


def exporter_of(clock: Clock, own_id: str, counted: Callable[[str, int], None]) -> "SpanExporter | None":
    """Who sends spans; None where nobody wants them."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return None
    # Not at the top: most managers send no spans, and all would pay for it.
    from remuda.manager.metrics.spans import find_exporter
    from remuda.telemetry.otlp_settings import is_wanted

    return find_exporter(os.environ, clock, counted, own_id=own_id) if is_wanted(os.environ) else None


def spans_of(exporter: "SpanExporter | None") -> "Callable[[JobRow, JobPayload], JobSpans] | None":
    """Who makes them."""
    if exporter is None:
        return None
    from remuda.manager.metrics.spans import JobSpans

    return partial(JobSpans, offer=exporter.offer)
