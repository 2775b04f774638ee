"""The Prometheus metrics of a cell, with GitLab's names where GitLab has them, so that dashboards keep working.

Numbers from the store and the queue are read at each scrape: only unfinished jobs and pipelines, because the number of
finished ones only grows. For finished ones, each process counts those that it ended since its start."""

from collections import Counter as Numbers
from collections.abc import Mapping

from remuda.model.job import FINAL, JobState
from remuda.model.progress import OPEN
from remuda.telemetry.metrics import Counter, Gauge, Histogram, Number, Registry, Spread, render

QUEUE_BUCKETS = (0.05, 0.25, 1, 3, 10, 30, 60, 120, 300, 900, 1800, 3600)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class _MirroredCounter:
    """A Prometheus counter for totals that other code counts: `set_totals` raises it to the current totals."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._totals: Numbers[str] = Numbers()

    def set_totals(self, numbers: Mapping[str, int]) -> None:
        for word, number in numbers.items():
            self._counter.labels(word).inc(number - self._totals[word])
            self._totals[word] = number


class CellMetrics:
    def __init__(self) -> None:
        self.registry = Registry()
        self._requests = Counter(
            "remuda_cell_http_requests",
            "Answered requests, by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "remuda_cell_http_request_duration_seconds",
            "Time until the response was complete, by route. Includes held job requests and streams.",
            ("route",),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        queue_seconds = Histogram(
            "job_queue_duration_seconds",
            "Time from when a job could run until a runner received it. shared_runner: true for instance runners.",
            ("shared_runner",),
            buckets=QUEUE_BUCKETS,
            registry=self.registry,
        )
        self._queue_seconds = {shared: queue_seconds.labels(str(shared).lower()) for shared in (False, True)}
        self.trace_mismatches = Counter(
            "remuda_cell_trace_mismatches",
            "Jobs whose runner reported another log checksum than that of the stored log.",
            registry=self.registry,
        )
        self._answers: dict[tuple[str, str, int], tuple[Number, Spread]] = {}
        self._jobs = Gauge("remuda_cell_jobs", "Unfinished jobs, by state.", ("state",), registry=self.registry)
        self._pipelines = Gauge(
            "remuda_cell_pipelines", "Unfinished pipelines, by status.", ("status",), registry=self.registry
        )
        self._ended_jobs = _MirroredCounter(
            Counter(
                "remuda_cell_jobs_ended", "Jobs that this process ended, by state.", ("state",), registry=self.registry
            )
        )
        self._ended_pipelines = _MirroredCounter(
            Counter(
                "remuda_cell_pipelines_ended",
                "Pipelines that this process ended, by status.",
                ("status",),
                registry=self.registry,
            )
        )
        self._waiting = Gauge("remuda_cell_queue_size", "Jobs that wait for a runner.", registry=self.registry)
        self._polls = Gauge(
            "remuda_cell_held_polls", "Job requests that wait for a job (long polling).", registry=self.registry
        )
        self._watchers = Gauge("remuda_cell_watchers", "Open event streams.", registry=self.registry)

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request and its duration. The label look-up is cached, because every request calls this."""
        numbers = self._answers.get((method, route, status))
        if numbers is None:
            numbers = (self._requests.labels(method, route, str(status)), self._request_seconds.labels(route))
            self._answers[method, route, status] = numbers
        numbers[0].inc()
        numbers[1].observe(seconds)

    def observe_handout(self, seconds: float, *, shared: bool) -> None:
        """Record how long a job waited for a runner. `shared`: the runner is an instance runner."""
        self._queue_seconds[shared].observe(seconds)

    def text(
        self,
        *,
        jobs: Mapping[str, int],
        pipelines: Mapping[str, int],
        ended_jobs: Mapping[str, int],
        ended_pipelines: Mapping[str, int],
        waiting: int,
        polls: int,
        watchers: int = 0,
    ) -> bytes:
        """Return all metrics in Prometheus' text format. The arguments are current numbers: unfinished `jobs` by state
        and `pipelines` by status, ended ones since the start of the process, jobs that wait for a runner (`waiting`),
        long-polling job requests (`polls`), open event streams (`watchers`)."""
        for state in frozenset(JobState) - FINAL:
            self._jobs.labels(state.value).set(jobs.get(state.value, 0))
        for status in OPEN:
            self._pipelines.labels(status).set(pipelines.get(status, 0))
        self._ended_jobs.set_totals(ended_jobs)
        self._ended_pipelines.set_totals(ended_pipelines)
        self._waiting.set(waiting)
        self._polls.set(polls)
        self._watchers.set(watchers)
        return render(self.registry)
