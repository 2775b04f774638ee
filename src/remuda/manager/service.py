"""The manager as a whole: opens its data folder, finds its jobs again, asks for new ones, and stops in two ways.

Stop: at once; running jobs stay with the agent and in the journal, and the next start goes on with them. Drain: no new
jobs, wait for the running ones up to the drain time, then stop. A manager whose journal is gone could promise nothing:
it fails its jobs and ends. This module only puts parts together and supervises
them; a part that fails unexpectedly is logged and started again, because one job must not take the others with it.
"""

import asyncio
import os
import sqlite3
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.descriptors import raise_limit
from remuda.lib.killpoints import reach
from remuda.manager.adapters.local import LocalEnvironment
from remuda.manager.config import ManagerConfig, RunnerConfig, load
from remuda.manager.core.life import Limits
from remuda.manager.core.record import Phase, Record
from remuda.manager.core.slots import Slot, Slots
from remuda.manager.errors import ConfigError, DataFolderError
from remuda.manager.features import runner_info
from remuda.manager.jobs import ManagedJob, Surroundings, job_key
from remuda.manager.journal import JobRow, Journal, locked
from remuda.manager.link import AgentLink
from remuda.manager.metrics import JobSample, ManagerMetrics, RunnerLabels, serve_metrics
from remuda.manager.polling import Asker, Asking, Room
from remuda.manager.ports import Environment
from remuda.manager.system_id import system_id
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_api import VERSION
from remuda.wire.runner_client import JobOffer, RunnerClient, new_session, tls_context

if TYPE_CHECKING:
    from remuda.manager.tracing import JobSpans
    from remuda.telemetry.otlp import SpanExporter
    from remuda.wire.runner_api import JobPayload

LOOK_SECONDS = 1.0
"""How often is looked whether the data folder is still there."""
GATHERING_SECONDS = 0.2
"""Nobody sees that log and results come so much later, and a job that is over by then costs half the calls."""
GIVE_UP_SECONDS = 20.0
"""How long a manager that lost its data folder tries to tell the servers about its jobs."""
_AGAIN = Backoff(first_seconds=1.0, ceiling_seconds=60.0)


class ManagerService:
    """One manager over one data folder; `config` is the file or what was read from it."""

    def __init__(
        self,
        config: Path | ManagerConfig,
        data: Path,
        *,
        clock: Clock | None = None,
        environment: Environment | None = None,
        agent_idle_exit_seconds: float = 300.0,
        keep_alive_seconds: float = 30.0,
        keep_builds: bool = False,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        """A silent job learns of its cancellation with the answer to its next keep-alive.

        With `keep_builds` every job has a working directory of its own, and that of a failed one stays: see `kept`.
        """
        self._config = config
        self._limits = Limits(keep_alive=keep_alive_seconds, gathering=GATHERING_SECONDS)
        self._data = data
        self._keep_builds = keep_builds
        self._on_job_over = on_job_over
        self._clock = clock or SystemClock()
        self._environment = environment or LocalEnvironment(
            data, clock=self._clock, idle_exit_seconds=agent_idle_exit_seconds
        )

    async def run(
        self, stop: asyncio.Event, *, drain: asyncio.Event | None = None, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until told to stop or drained. ManagerError says why it cannot start."""
        config, beside = self._load()
        raise_limit()
        async with AsyncExitStack() as stack:
            stack.enter_context(locked(self._data))
            journal = Journal(self._data / "journal.sqlite")
            stack.callback(journal.close)
            session = await stack.enter_async_context(new_session())
            manager = Manager(
                config,
                journal=journal,
                session=session,
                environment=self._environment,
                clock=self._clock,
                own_id=system_id(self._data, beside_config=beside),
                limits=self._limits,
                keeps_in=self._data if self._keep_builds else None,
                on_job_over=self._on_job_over,
            )
            if manager.exporter is not None:
                await stack.enter_async_context(manager.exporter)
            if config.listen_address:
                await stack.enter_async_context(serve_metrics(config.listen_address, manager.metrics.registry))
            await manager.serve(stop, drain or asyncio.Event(), ready)

    def _load(self) -> tuple[ManagerConfig, Path | None]:
        if isinstance(self._config, ManagerConfig):
            return self._config, None
        loaded = load(self._config)
        for warning in loaded.warnings:
            logger("manager").warning(warning)
        return loaded.config, self._config.parent


def _exporter(clock: Clock, own_id: str, counted: Callable[[str, int], None]) -> "SpanExporter | None":
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return None
    # Not at the top: most managers send no spans, and all would pay for it.
    from remuda.manager.tracing import find_exporter
    from remuda.telemetry.otlp_settings import is_wanted

    return find_exporter(os.environ, clock, counted, own_id=own_id) if is_wanted(os.environ) else None


def _spans_of(exporter: "SpanExporter | None") -> "Callable[[JobRow, JobPayload], JobSpans] | None":
    if exporter is None:
        return None
    from remuda.manager.tracing import JobSpans

    return partial(JobSpans, offer=exporter.offer)


class Manager:
    """All parts of a running manager."""

    def __init__(
        self,
        config: ManagerConfig,
        *,
        journal: Journal,
        session: HttpSession,
        environment: Environment,
        clock: Clock,
        own_id: str,
        limits: Limits,
        keeps_in: Path | None = None,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_job_over = on_job_over
        self._jobs: dict[str, ManagedJob] = {}
        self.metrics = ManagerMetrics(self._samples)
        self.metrics.configured(config, own_id)
        self.exporter = _exporter(clock, own_id, self.metrics.spans)
        """Who sends spans, until it is left; None where nobody wants them."""
        self._config = config
        self._session = session
        self._clock = clock
        self._around = Surroundings(
            environment=environment,
            link=AgentLink(environment, clock),
            journal=journal,
            clock=clock,
            system_id=own_id,
            limits=limits,
            keeps_in=keeps_in,
            spans_of=_spans_of(self.exporter),
        )
        self._room = Room(
            Slots(concurrent=config.concurrent, limits={runner.short_token: runner.limit for runner in config.runners}),
            runners=len(config.runners),
        )
        self._job_tasks: set[asyncio.Task[None]] = set()
        self._group = asyncio.TaskGroup()
        self._is_lost = False
        self._log = logger("manager")
        self._runners = [(runner, self._client(runner)) for runner in config.runners]

    async def serve(self, stop: asyncio.Event, drain: asyncio.Event, ready: Callable[[], None]) -> None:
        """Until stopped or drained."""
        async with self._group:
            tasks = [self._supervised("agent link", self._around.link.run)]
            if self.exporter is not None:
                tasks.append(self._supervised("sender of spans", self.exporter.run))
            await self._find_jobs()
            asking = Asking(
                room=self._room,
                environment=self._around.environment,
                link=self._around.link,
                clock=self._clock,
                check_interval_seconds=self._config.check_interval_seconds / len(self._runners),
                take=self._take,
                opened=lambda runner, change: self.metrics.asking(self._labels(runner), change),
            )
            askers = [
                self._supervised(f"asker {number} of {runner.short_token}", Asker(runner, client, asking).run)
                for runner, client in self._runners
                for number in range(min(max(runner.request_concurrency, 1), self._config.concurrent))
            ]
            self._log.info("the manager serves", version=__version__, runners=len(self._runners), jobs=len(self._jobs))
            ready()
            try:
                await self._until_over(stop, drain, askers)
            finally:
                for task in [*askers, *self._job_tasks, *tasks]:
                    task.cancel()
        if self._is_lost:
            raise DataFolderError(
                "the data folder is gone from under the manager, and with it the journal of its jobs; find out what "
                "removed it, and start it again"
            )

    async def _until_over(
        self, stop: asyncio.Event, drain: asyncio.Event, askers: Iterable[asyncio.Task[None]]
    ) -> None:
        async with asyncio.TaskGroup() as waiting:
            stopped = waiting.create_task(stop.wait(), name="stop")
            draining = waiting.create_task(drain.wait(), name="drain")
            lost = waiting.create_task(self._look_at_journal(), name="look at the journal")
            await asyncio.wait({stopped, draining, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done() and not lost.done():
                self._log.info("no more jobs are asked for", running=len(self._jobs))
                for task in askers:
                    task.cancel()
                limit = waiting.create_task(self._clock.sleep(self._config.drain_seconds), name="drain limit")
                while self._job_tasks and not any(end.done() for end in (stopped, limit, lost)):
                    await asyncio.wait({stopped, limit, lost, *self._job_tasks}, return_when=asyncio.FIRST_COMPLETED)
                limit.cancel()
            if lost.done():
                await self._give_up(askers)
            elif self._jobs:
                self._log.info("jobs are left to the agent; a new start goes on with them", jobs=len(self._jobs))
            for waiter in (stopped, draining, lost):
                waiter.cancel()

    async def _look_at_journal(self) -> None:
        """Return when it is gone."""
        while self._around.journal.is_there():
            await self._clock.sleep(LOOK_SECONDS)

    async def _give_up(self, askers: Iterable[asyncio.Task[None]]) -> None:
        """No process will find these jobs again, so they end here, and their users learn why."""
        self._is_lost = True
        for task in askers:
            task.cancel()
        self._around.journal.give_up()
        for job in list(self._jobs.values()):
            job.give_up("the manager's data folder is gone")
        if self._job_tasks:
            await asyncio.wait(set(self._job_tasks), timeout=GIVE_UP_SECONDS)

    async def _find_jobs(self) -> None:
        """Go on with the jobs of an earlier process."""
        found = self._around.journal.jobs()
        is_there = not found or await self._around.environment.recover()
        for row, record in found:
            self._room.adopt(Slot(row.runner, row.slot))
            runner, client = self._runner_of(row)
            job = self._begin(row, record, runner, client)
            if record.phase is Phase.STARTED and not is_there:
                job.life.fail(
                    FailureReason.RUNNER_SYSTEM_FAILURE, "the agent's files are gone", self._clock.monotonic()
                )

    def _runner_of(self, row: JobRow) -> tuple[RunnerConfig, RunnerClient]:
        """The runner that took a job, also when it is not configured any more: its job still ends properly."""
        for runner, client in self._runners:
            if (runner.short_token, client.url) == (row.runner, row.url):
                return runner, client
        runner = RunnerConfig(name=row.runner_name, url=row.url, token=row.runner, executor="shell")
        return runner, self._client(runner)

    async def _take(self, runner: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        """Store a job that came; from then on it is ours."""
        reach("manager.received")
        payload = offer.payload
        assert payload is not None
        key = job_key(payload.id, payload.token)
        if key in self._jobs or not self._around.journal.is_there():
            return False
        client = next(client for known, client in self._runners if known is runner)
        row = JobRow(
            key=key,
            job_id=payload.id,
            url=client.url,
            runner=runner.short_token,
            runner_name=runner.name,
            slot=slot.number,
            sends_results=offer.is_remuda,
            received_at=self._clock.now(),
            api_version=VERSION,
            payload=offer.body,
        )
        try:
            await self._around.journal.add(row)
        except sqlite3.Error as error:
            self._log.error("a job is not taken: the journal cannot be written", job=payload.id, cause=str(error))
            return False
        reach("manager.journaled")
        self.metrics.received(
            self._labels(runner),
            queued_seconds=payload.job_info.time_in_queue_seconds,
            project_jobs_running=payload.job_info.project_jobs_running_on_instance_runners_count,
        )
        self._log.info("a job came", job=payload.id, runner=runner.short_token, slot=slot.number)
        self._begin(row, Record(), runner, client)
        return True

    def _begin(self, row: JobRow, record: Record, runner: RunnerConfig, client: RunnerClient) -> ManagedJob:
        job = ManagedJob(row, record, runner=runner, client=client, around=self._around)
        self._jobs[row.key] = job
        task = self._supervised(f"job {row.key}", partial(self._finish, job))
        self._job_tasks.add(task)
        task.add_done_callback(self._job_tasks.discard)
        return job

    async def _finish(self, job: ManagedJob) -> None:
        await job.run()
        del self._jobs[job.key]
        self._room.release(Slot(job.runner, job.slot))
        outcome = job.life.outcome
        reason = outcome.reason if outcome is not None else FailureReason.JOB_CANCELED
        seconds = self._clock.now() - job.received_at
        self.metrics.finished(job.labels, seconds=seconds, failure_reason=reason)
        self._log.info("a job is over", job=job.job_id, reason=reason, seconds=round(seconds, 3))
        self._on_job_over()

    def _supervised(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A task that is started again when it fails in a way nobody foresaw."""

        async def supervise() -> None:
            failures = 0
            while True:
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - an unforeseen failure must stay that of one part
                    failures += 1
                    self.metrics.failed()
                    self._log.error("a part of the manager failed", failed=name, exc_info=error)
                    await self._clock.sleep(_AGAIN.delay(failures))
                else:
                    return

        return self._group.create_task(supervise(), name=name)

    def _client(self, runner: RunnerConfig) -> RunnerClient:
        labels = self._labels(runner)
        try:
            tls = None
            # Reading all authorities of the machine takes a while, and a plain address needs none.
            if not runner.url.startswith("http://") or runner.tls_ca_file or runner.tls_cert_file:
                tls = tls_context(
                    ca_file=runner.tls_ca_file, cert_file=runner.tls_cert_file, key_file=runner.tls_key_file
                )
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"runner {runner.name or runner.short_token}: the tls files cannot be used: {error}"
            ) from error
        return RunnerClient(
            url=runner.url,
            token=runner.token,
            system_id=self._around.system_id,
            info=runner_info(
                executor=runner.executor,
                labels=runner.labels,
                capacity=min(runner.limit or self._config.concurrent, self._config.concurrent),
            ),
            session=self._session,
            clock=self._clock,
            tls=tls,
            measure=lambda call: self.metrics.measured(labels, call),
        )

    def _labels(self, runner: RunnerConfig) -> RunnerLabels:
        return RunnerLabels(runner=runner.short_token, runner_name=runner.name, system_id=self._around.system_id)

    def _samples(self) -> Iterable[JobSample]:
        return [JobSample(labels=job.labels, state=job.state, stage=job.stage) for job in self._jobs.values()]
