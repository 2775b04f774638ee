"""What the manager counts: gitlab-runner's metric names and labels, so that existing dashboards and alerts work.

The gauge of running jobs is computed from the jobs themselves whenever somebody looks; everything else is counted when
it happens. Names and labels stand only here.
"""

import platform
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from remuda import __version__
from remuda.manager.config import ManagerConfig, listen_address
from remuda.manager.errors import ManagerError
from remuda.telemetry.metrics import CONTENT_TYPE, Counter, Gauge, Histogram, Registry, render
from remuda.wire.runner_client import Measured

MODE = "traditional"
"""Jobs come as scripts; GitLab calls those that come as steps `steps`."""
_RUNNER = ("runner", "runner_name", "system_id")
_OF_JOB = ("state", "stage", "executor_stage")
_DURATIONS = (30, 60, 300, 600, 1800, 3600, 7200, 10800, 18000, 36000)
_QUEUED = (1, 3, 10, 30, 60, 120, 300, 900, 1800, 3600)
_CALLS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class RunnerLabels(msgspec.Struct, frozen=True, kw_only=True):
    """Which runner a figure belongs to."""

    runner: str
    runner_name: str
    system_id: str

    def values(self) -> tuple[str, str, str]:
        return self.runner, self.runner_name, self.system_id


class JobSample(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the manager, as the gauge shows it."""

    labels: RunnerLabels
    state: str
    stage: str


class ManagerMetrics:
    """The manager's registry and everything in it."""

    def __init__(self, sample: Callable[[], Iterable[JobSample]]) -> None:
        self.registry = Registry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

        self._sample = sample
        self._jobs_now = gauge("gitlab_runner_jobs", "Jobs the manager has now.", *_RUNNER, *_OF_JOB)
        self.registry.refreshers.append(self._count_jobs)
        self._jobs = counter("gitlab_runner_jobs_total", "Jobs handled.", *_RUNNER)
        self._failed = counter(
            "gitlab_runner_failed_jobs_total", "Jobs failed.", "runner", "runner_name", "failure_reason", "mode"
        )
        self._duration = histogram(
            "gitlab_runner_job_duration_seconds", "How long jobs took.", _DURATIONS, *_RUNNER, "mode"
        )
        self._queued = histogram(
            "gitlab_runner_job_queue_duration_seconds",
            "How long jobs waited for a runner.",
            _QUEUED,
            *_RUNNER,
            "project_jobs_running",
        )
        self._concurrent = gauge("gitlab_runner_concurrent", "Jobs that may run at the same time.")
        self._limit = gauge("gitlab_runner_limit", "Jobs of the runner that may run at the same time.", *_RUNNER)
        self._request_concurrency = gauge(
            "gitlab_runner_request_concurrency", "Requests for jobs that are open now.", "runner", "system_id"
        )
        self._statuses = counter(
            "gitlab_runner_api_request_statuses_total",
            "Calls to the server.",
            "runner",
            "system_id",
            "endpoint",
            "status",
            "method",
        )
        self._calls = histogram(
            "gitlab_runner_api_request_duration_seconds",
            "How long calls to the server took.",
            _CALLS,
            "runner",
            "system_id",
            "endpoint",
            "status_class",
            "method",
        )
        self._spans = counter(
            "remuda_manager_spans_total", "Spans of jobs and steps: sent, dropped here, refused there.", "outcome"
        )
        self._errors = counter("gitlab_runner_errors_total", "Failures that nobody foresaw.", "level")
        version = gauge(
            "gitlab_runner_version_info",
            "The manager's version.",
            "name",
            "version",
            "revision",
            "branch",
            "go_version",
            "built_at",
            "os",
            "architecture",
        )
        version.labels(
            "remuda", __version__, __version__, "", "", "", platform.system().lower(), platform.machine()
        ).set(1)
        self._errors.labels("error")

    def configured(self, config: ManagerConfig, system_id: str) -> None:
        """The configuration's limits."""
        self._concurrent.set(config.concurrent)
        for runner in config.runners:
            labels = RunnerLabels(runner=runner.short_token, runner_name=runner.name, system_id=system_id)
            self._limit.labels(*labels.values()).set(runner.limit)
            self._jobs.labels(*labels.values())
            self._request_concurrency.labels(runner.short_token, system_id).set(0)

    def received(self, labels: RunnerLabels, *, queued_seconds: float, project_jobs_running: str) -> None:
        """A job came in."""
        self._jobs.labels(*labels.values()).inc()
        self._queued.labels(*labels.values(), project_jobs_running).observe(queued_seconds)

    def finished(self, labels: RunnerLabels, *, seconds: float, failure_reason: str) -> None:
        """A job ended; the reason is empty for a success."""
        self._duration.labels(*labels.values(), MODE).observe(seconds)
        if failure_reason:
            self._failed.labels(labels.runner, labels.runner_name, failure_reason, MODE).inc()

    def asking(self, labels: RunnerLabels, change: int) -> None:
        """A request for a job was opened (1) or answered (-1)."""
        self._request_concurrency.labels(labels.runner, labels.system_id).inc(change)

    def measured(self, labels: RunnerLabels, call: Measured) -> None:
        """A call to the server was answered, or not (status -1)."""
        status_class = f"{call.status // 100}xx" if call.status > 0 else "none"
        self._statuses.labels(labels.runner, labels.system_id, call.endpoint, str(call.status), call.method).inc()
        self._calls.labels(labels.runner, labels.system_id, call.endpoint, status_class, call.method).observe(
            call.seconds
        )

    def spans(self, outcome: str, number: int) -> None:
        """So many spans were sent, dropped or refused."""
        self._spans.labels(outcome).inc(number)

    def failed(self) -> None:
        """A part of the manager failed in a way nobody foresaw, and was started again."""
        self._errors.labels("error").inc()

    def _count_jobs(self) -> None:
        self._jobs_now.parts.clear()
        tally = Tally((*job.labels.values(), job.state, job.stage, "") for job in self._sample())
        for labels, number in tally.items():
            self._jobs_now.labels(*labels).set(number)


@asynccontextmanager
async def serve_metrics(address: str, registry: Registry) -> AsyncIterator[None]:
    """Serve `/metrics` on `host:port`, without authentication, as gitlab-runner does."""
    from aiohttp import web  # not at the top: most managers serve none, and all would pay for it

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=render(registry), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        host, port = listen_address(address)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ManagerError(
                f"listen_address: {address} cannot be used: {error.strerror}. Choose another port, or stop who uses it."
            ) from error
        yield
    finally:
        await runner.cleanup()
