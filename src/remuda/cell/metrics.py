"""What a cell counts. GitLab's names where GitLab has them, so that dashboards and alerts keep working.

The edge counts requests and hand-outs as they happen; what can be read from the store and the queue is read when
somebody asks for the metrics. docs/reference/http.md lists the names.
"""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from remuda.model.job import JobState
from remuda.telemetry.metrics import new_registry, render

QUEUE_BUCKETS = (0.05, 0.25, 1, 3, 10, 30, 60, 120, 300, 900, 1800, 3600)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CellMetrics:
    """The metrics of one cell."""

    def __init__(self) -> None:
        self.registry = new_registry()
        self.requests = Counter(
            "remuda_cell_http_requests",
            "Requests answered, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "remuda_cell_http_request_duration_seconds",
            "Time until the answer was complete; held polls and streams included.",
            ("route",),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "job_queue_duration_seconds",
            "Time from a job's turn until it was handed to a runner.",
            ("shared_runner",),
            buckets=QUEUE_BUCKETS,
            registry=self.registry,
        )
        self.trace_mismatches = Counter(
            "remuda_cell_trace_mismatches",
            "Jobs that ended with a checksum of their log that is not that of the stored one.",
            registry=self.registry,
        )
        self._jobs = Gauge("remuda_cell_jobs", "Jobs by state.", ("state",), registry=self.registry)
        self._pipelines = Gauge("remuda_cell_pipelines", "Pipelines by status.", ("status",), registry=self.registry)
        self._waiting = Gauge("remuda_cell_queue_size", "Jobs that wait for a runner.", registry=self.registry)
        self._polls = Gauge("remuda_cell_held_polls", "Requests for a job that are held.", registry=self.registry)
        self._watchers = Gauge("remuda_cell_watchers", "Callers who watch events.", registry=self.registry)

    def text(
        self, *, jobs: Mapping[str, int], pipelines: Mapping[str, int], waiting: int, polls: int, watchers: int = 0
    ) -> bytes:
        """All of it as Prometheus reads it."""
        for state in JobState:
            self._jobs.labels(state.value).set(jobs.get(state.value, 0))
            if state is not JobState.LEASED:
                self._pipelines.labels(state.value).set(pipelines.get(state.value, 0))
        self._waiting.set(waiting)
        self._polls.set(polls)
        self._watchers.set(watchers)
        return render(self.registry)
