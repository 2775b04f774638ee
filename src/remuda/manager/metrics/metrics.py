"""The manager's Prometheus metrics and their HTTP endpoint. Gauges of the current state (jobs, slots, health, disk) are
computed at each scrape; other metrics are updated when an event happens."""

import platform
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from weakref import WeakSet

import msgspec

from remuda import __version__
from remuda.manager.config.fleet_setup import is_autoscaled
from remuda.manager.config.values import ManagerConfig, RunnerConfig, listen_address
from remuda.manager.core.open_requests import RequestLimit
from remuda.manager.core.poll_pace import Health
from remuda.manager.core.queue_duration import is_too_long
from remuda.manager.errors import ManagerError
from remuda.manager.metrics.machine_metrics import MACHINE_STATES, show_states
from remuda.manager.metrics.metric_table import HIGH_CARDINALITY_FLAG, SERVED
from remuda.manager.metrics.scaling_metrics import SCALING_GAUGES, ScalingCounts
from remuda.manager.polling.poller import Poller, PollerEvents
from remuda.telemetry import logs
from remuda.telemetry.metrics import CONTENT_TYPE, Counter, Gauge, Histogram, Registry, render
from remuda.wire.agent_client import JobUse
from remuda.wire.runner_api import JobInfo, JobPayload
from remuda.wire.runner_server import Measured

TRADITIONAL, STEPS = "traditional", "steps"
"""How a job was defined: as scripts, or as steps (`run`)."""
STATES = ("starting", "running", "graceful-shutdown", "forceful-shutdown")
_LEVELS = ("warning", "error", "fatal", "panic")


def mode_of(payload: JobPayload) -> str:
    return STEPS if payload.run else TRADITIONAL


class RunnerLabels(msgspec.Struct, frozen=True, kw_only=True):
    runner: str
    runner_name: str
    system_id: str

    def values(self) -> tuple[str, str, str]:
        return self.runner, self.runner_name, self.system_id


class JobSample(msgspec.Struct, frozen=True, kw_only=True):
    labels: RunnerLabels
    state: str
    stage: str
    executor_stage: str = ""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of job slots: with running jobs, with open requests for jobs, and free."""

    running: int
    requesting: int
    free: int

    @property
    def for_server(self) -> dict[str, int]:
        """The numbers in the form that is sent to cells, where a slot with an open request counts as free."""
        return {"running": self.running, "free": self.requesting + self.free}

    @property
    def saturation(self) -> float:
        """Share of all slots that run jobs, from 0 to 1; 1 if there are no slots."""
        slots = self.running + self.requesting + self.free
        return self.running / slots if slots else 1.0


class ManagerMetrics:
    """All metrics of the manager. `sample` returns state and labels of each current job, for each scrape."""

    def __init__(self, sample: Callable[[], Iterable[JobSample]]) -> None:
        self.registry = Registry()
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        for family in SERVED.values():
            if family.kind == "histogram":
                self._metrics[family.name] = Histogram(
                    family.name, family.text, family.labels, buckets=family.buckets, registry=self.registry
                )
            else:
                kind = Counter if family.kind == "counter" else Gauge
                self._metrics[family.name] = kind(family.name, family.text, family.labels, registry=self.registry)
        self._sample = sample
        self._load: Callable[[], Load] | None = None
        self._pollers: Callable[[], Iterable[Poller]] | None = None
        self._system_id = ""
        self._concurrent = 0
        self.machine_states: dict[str, Mapping[tuple[str, ...], int]] = {}
        """Machine states of runners with Docker Machine, by short token."""
        self._scalers: WeakSet[ScalingCounts] = WeakSet()
        self.registry.refreshers += [self._refresh_jobs, self._refresh_state, self._refresh_machines]
        self._set_version()
        for level in _LEVELS:
            self.counter("gitlab_runner_errors_total").labels(level)
        for operation in ("started", "stopped"):
            self.counter("gitlab_runner_worker_slot_operations_total").labels(operation)
        for outcome in ("sent", "dropped", "refused"):
            self.counter("remuda_manager_spans_total").labels(outcome)
        self.set_state("starting")
        logs.notify_of_problems("manager", lambda level: self.counter("gitlab_runner_errors_total").labels(level).inc())

    def _set_version(self) -> None:
        machine = platform.system().lower(), platform.machine()
        about = ("remuda", __version__, __version__, "", "", "", *machine)
        self.gauge("gitlab_runner_version_info").labels(*about).set(1)

    def counter(self, name: str) -> Counter:
        metric = self._metrics[name]
        assert isinstance(metric, Counter)
        return metric

    def gauge(self, name: str) -> Gauge:
        metric = self._metrics[name]
        assert isinstance(metric, Gauge)
        return metric

    def histogram(self, name: str) -> Histogram:
        metric = self._metrics[name]
        assert isinstance(metric, Histogram)
        return metric

    def watch(self, load: Callable[[], Load], pollers: Callable[[], Iterable[Poller]]) -> None:
        """Set the functions that return the job slots and the pollers, for gauges that are computed at each scrape."""
        self._load, self._pollers = load, pollers

    @property
    def load(self) -> Load | None:
        return None if self._load is None else self._load()

    def set_state(self, state: str) -> None:
        """Set the gauge of the manager's state; `state` is one of STATES, such as `running`."""
        self.current_state = state
        for other in STATES:
            self.gauge("gitlab_runner_process_state_info").labels(other).set(other == state)

    def apply_config(self, config: ManagerConfig, system_id: str) -> None:
        """Set the gauges of configured limits. Called at the start and after each reload."""
        self._system_id = system_id
        self.gauge("gitlab_runner_concurrent").set(config.concurrent)
        self.gauge("gitlab_runner_worker_slots_number").set(config.concurrent)
        operations = self.counter("gitlab_runner_worker_slot_operations_total")
        operations.labels("started").inc(max(0, config.concurrent - self._concurrent))
        operations.labels("stopped").inc(max(0, self._concurrent - config.concurrent))
        self._concurrent = config.concurrent
        self.gauge("gitlab_runner_limit").parts.clear()
        self._forget_machines([runner for runner in config.runners if is_autoscaled(runner)])
        for runner in config.runners:
            labels = self.labels(runner)
            self.gauge("gitlab_runner_limit").labels(*labels).set(runner.limit)
            for name in (
                "gitlab_runner_jobs_total",
                "gitlab_runner_acceptable_job_queuing_duration_exceeded_total",
                "gitlab_runner_worker_feeds_total",
                "gitlab_runner_worker_feed_failures_total",
                "gitlab_runner_worker_health_check_failures_total",
            ):
                self.counter(name).labels(*labels)
            self.counter("gitlab_runner_request_concurrency_exceeded_total").labels(labels[0], labels[2])
            self.gauge("gitlab_runner_request_concurrency").labels(labels[0], labels[2])

    def _forget_machines(self, scaled: Sequence[RunnerConfig]) -> None:
        labels, tokens = {self.labels(runner) for runner in scaled}, {runner.short_token for runner in scaled}
        for name in SCALING_GAUGES:
            gauge = self.gauge(name)
            gauge.parts = {values: number for values, number in gauge.parts.items() if values[:3] in labels}
        self.machine_states = {token: states for token, states in self.machine_states.items() if token in tokens}

    def fleet_ended(self, runner: RunnerConfig) -> None:
        """Remove the gauges about created machines of a runner whose autoscaled environment is closed."""
        labels = self.labels(runner)
        for name in SCALING_GAUGES:
            gauge = self.gauge(name)
            gauge.parts = {values: number for values, number in gauge.parts.items() if values[:3] != labels}
        self.machine_states.pop(runner.short_token, None)

    def configuration_loaded(self) -> None:
        self.counter("gitlab_runner_configuration_loaded_total").inc()

    def configuration_failed(self) -> None:
        self.counter("gitlab_runner_configuration_loading_error_total").inc()

    def configuration_saved(self, *, is_done: bool) -> None:
        """Count that the manager wrote its configuration file, or with `is_done` false that it could not."""
        name = "saved_total" if is_done else "saving_error_total"
        self.counter(f"gitlab_runner_configuration_{name}").inc()

    def count_received(self, runner: RunnerConfig, about: JobInfo, *, mode: str, now: float) -> None:
        """Count a received job, and record its time in the server's queue. `mode`: TRADITIONAL (scripts) or STEPS."""
        labels = self.labels(runner)
        queued, running = about.time_in_queue_seconds, about.project_jobs_running_on_instance_runners_count
        self.counter("gitlab_runner_jobs_total").labels(*labels).inc()
        self.counter("gitlab_runner_job_execution_mode_total").labels(mode, runner.executor).inc()
        self.histogram("gitlab_runner_job_queue_duration_seconds").labels(*labels, running).observe(queued)
        self.gauge("gitlab_runner_job_queue_size").labels(*labels).set(about.queue_size)
        self.gauge("gitlab_runner_job_queue_depth").labels(*labels).set(about.queue_depth)
        if is_too_long(
            runner.monitoring.job_queuing_durations,
            now=datetime.fromtimestamp(now, UTC),
            queued_seconds=queued,
            project_jobs_running=running,
        ):
            self.counter("gitlab_runner_acceptable_job_queuing_duration_exceeded_total").labels(*labels).inc()

    def count_stage(self, runner: RunnerConfig, stage: str, seconds: float) -> None:
        """Record how long a job was in a stage, if the runner has enabled that metric with a feature flag."""
        if runner.feature_flags.get(HIGH_CARDINALITY_FLAG, False):
            labels = (*self.labels(runner), stage)
            self.histogram("gitlab_runner_job_stage_duration_seconds").labels(*labels).observe(seconds)

    def count_finished(
        self, labels: RunnerLabels, *, seconds: float, failure_reason: str, mode: str = TRADITIONAL
    ) -> None:
        """Record a job's duration, and a failure if there is a reason. `mode`: TRADITIONAL (scripts) or STEPS."""
        self.histogram("gitlab_runner_job_duration_seconds").labels(*labels.values(), mode).observe(seconds)
        if failure_reason:
            failed = labels.runner, labels.runner_name, failure_reason, mode
            self.counter("gitlab_runner_failed_jobs_total").labels(*failed).inc()
            self.counter("gitlab_runner_worker_processing_failures_total").labels("job_failure", *labels.values()).inc()

    def count_usage(self, labels: RunnerLabels, use: JobUse) -> None:
        for name, kind, amount in (
            ("cpu_seconds", "user", use.cpu_user_seconds),
            ("cpu_seconds", "system", use.cpu_system_seconds),
            ("disk_bytes", "read", use.disk_read_bytes),
            ("disk_bytes", "written", use.disk_written_bytes),
            ("network_bytes", "received", use.network_received_bytes),
            ("network_bytes", "sent", use.network_sent_bytes),
        ):
            if amount is not None:
                self.counter(f"remuda_manager_job_{name}_total").labels(*labels.values(), kind).inc(amount)
        for name, size in (("memory_peak", use.memory_peak_bytes), ("work_dir", use.work_dir_bytes)):
            if size is not None:
                self.histogram(f"remuda_manager_job_{name}_bytes").labels(*labels.values()).observe(size)

    def poller_events(self) -> PollerEvents:
        return PollerEvents(
            opened=self._count_request,
            limited=self._set_limits,
            exceeded=lambda runner: (
                self.counter("gitlab_runner_request_concurrency_exceeded_total")
                .labels(runner.short_token, self._system_id)
                .inc()
            ),
            starved=self._count_starved,
            failed=self._count_failed,
            emptied=lambda runner: self._count_reservation(runner, "unreserve"),
        )

    def _count_request(self, runner: RunnerConfig, change: int) -> None:
        self.gauge("gitlab_runner_request_concurrency").labels(runner.short_token, self._system_id).inc(change)
        if change > 0:
            self.counter("gitlab_runner_worker_feeds_total").labels(*self.labels(runner)).inc()
            self._count_reservation(runner, "reserve")

    def _set_limits(self, runner: RunnerConfig, limit: RequestLimit) -> None:
        for name, value in (("hard", limit.hard), ("adaptive", limit.adaptive), ("used", limit.used)):
            gauge = self.gauge(f"gitlab_runner_request_concurrency_{name}_limit")
            gauge.labels(runner.short_token, self._system_id).set(value)

    def _count_starved(self, runner: RunnerConfig, by_environment: bool) -> None:
        labels = self.labels(runner)
        self.counter("gitlab_runner_worker_feed_failures_total").labels(*labels).inc()
        if by_environment:
            name = "gitlab_runner_worker_processing_failures_total"
            self.counter(name).labels("no_free_executor", *labels).inc()
            if counts := self._scaler(runner):
                counts.count_starved()

    def _count_failed(self, runner: RunnerConfig, health: Health) -> None:
        labels = self.labels(runner)
        if health is Health.REFUSED:
            self.counter("gitlab_runner_worker_health_check_failures_total").labels(*labels).inc()
        else:
            self.counter("gitlab_runner_worker_processing_failures_total").labels("other", *labels).inc()

    def _count_reservation(self, runner: RunnerConfig, operation: str) -> None:
        """Count a slot on an autoscaled machine that a job request reserved (`reserve`) or gave back (`unreserve`)."""
        if counts := self._scaler(runner):
            counts.count_task_operation(operation)

    def _scaler(self, runner: RunnerConfig) -> ScalingCounts | None:
        return next((counts for counts in self._scalers if counts.short_token == runner.short_token), None)

    def add_scaler(self, runner: Callable[[], RunnerConfig]) -> ScalingCounts:
        counts = ScalingCounts(self, runner)
        self._scalers.add(counts)
        return counts

    def measure_call(self, labels: RunnerLabels, call: Measured) -> None:
        """Count a call to the server by status, and record its duration; status -1 means no answer."""
        status_class = f"{call.status // 100}xx" if call.status > 0 else "none"
        of_calls = labels.runner, labels.system_id, call.endpoint
        statuses = self.counter("gitlab_runner_api_request_statuses_total")
        statuses.labels(*of_calls, str(call.status), call.method).inc()
        durations = self.histogram("gitlab_runner_api_request_duration_seconds")
        durations.labels(*of_calls, status_class, call.method).observe(call.seconds)

    def count_retry(self, path: str, method: str) -> None:
        self.counter("gitlab_runner_api_request_retries_total").labels(path, method).inc()

    def count_spans(self, outcome: str, number: int) -> None:
        """Count OpenTelemetry spans by `outcome`: sent, dropped or refused."""
        self.counter("remuda_manager_spans_total").labels(outcome).inc(number)

    def labels(self, runner: RunnerConfig) -> tuple[str, str, str]:
        return runner.short_token, runner.name, self._system_id

    def _refresh_jobs(self) -> None:
        gauge = self.gauge("gitlab_runner_jobs")
        gauge.parts.clear()
        tally = Tally((*job.labels.values(), job.state, job.stage, job.executor_stage) for job in self._sample())
        for labels, number in tally.items():
            gauge.labels(*labels).set(number)

    def _refresh_machines(self) -> None:
        show_states(self.machine_states.values(), self.gauge(MACHINE_STATES))

    def _refresh_state(self) -> None:
        load = self.load
        if load is None or self._pollers is None:
            return
        for state, number in (("running", load.running), ("asking", load.requesting), ("free", load.free)):
            self.gauge("remuda_manager_slots").labels(state).set(number)
        self.gauge("remuda_manager_saturation").set(load.saturation)
        names = ("runner_well", "runner_blocked", "disk_free_bytes", "disk_least_bytes")
        well, blocked, free, least = (self.gauge(f"remuda_manager_{name}") for name in names)
        for gauge in (well, blocked, free, least):
            gauge.parts.clear()
        for poller in self._pollers():
            labels, status = self.labels(poller.runner), poller.status
            well.labels(*labels).set(status.health is Health.WELL)
            blocked.labels(*labels).set(status.is_blocked)
            least.labels(*labels).set(poller.runner.remuda.least_disk_bytes)
            if status.disk_free_bytes is not None:
                free.labels(*labels).set(status.disk_free_bytes)


@asynccontextmanager
async def serve_metrics(address: str, metrics: ManagerMetrics) -> AsyncIterator[None]:
    """Serve `/metrics` on `host:port`, without authentication, as gitlab-runner does. `/health/live` always answers
    200; `/health/ready` answers 200 in the state `running`, else 503."""
    from aiohttp import web  # imported here because most managers serve no metrics

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=render(metrics.registry), headers={"Content-Type": CONTENT_TYPE})

    async def live(_: web.Request) -> web.Response:
        return web.Response(text=f"{metrics.current_state}\n")

    async def ready(_: web.Request) -> web.Response:
        state = metrics.current_state
        return web.Response(text=f"{state}\n", status=200 if state == "running" else 503)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    app.router.add_get("/health/live", live)
    app.router.add_get("/health/ready", ready)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        host, port = listen_address(address)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ManagerError(
                f"listen_address: {address} cannot be used: {error.strerror}. Choose another port, or stop the program "
                "that uses it."
            ) from error
        yield
    finally:
        await runner.cleanup()
