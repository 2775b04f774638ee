"""The manager as a whole: opens its data folder, finds its jobs again, asks for new ones, and stops in two ways.

Stop: at once; running jobs stay with their agents and in the journal, and the next start goes on with them. Drain: no
new jobs, wait for the running ones up to the drain time, then stop. A data folder that is removed under the manager is
made anew. This module only puts parts together and supervises them; a part that fails unexpectedly is logged and
started again, because one job must not take the others with it.
"""

import asyncio
import os
import sqlite3
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.descriptors import raise_limit
from remuda.lib.killpoints import reach
from remuda.manager.config import ManagerConfig, RunnerConfig, load
from remuda.manager.core.life import Limits
from remuda.manager.core.record import Record
from remuda.manager.core.slots import Slot
from remuda.manager.data_folder import DataFolder
from remuda.manager.environments import Environments, identity, make_environment
from remuda.manager.errors import ConfigError
from remuda.manager.features import runner_info
from remuda.manager.jobs import ManagedJob, Surroundings, job_key
from remuda.manager.journal import JobRow, settings_name
from remuda.manager.link import AgentLink
from remuda.manager.links import Links
from remuda.manager.metrics import JobSample, Load, ManagerMetrics, RunnerLabels, mode_of, serve_metrics
from remuda.manager.polling import Asking, Poller
from remuda.manager.ports import Environment, standing_machine
from remuda.manager.room import Room
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
        jobs: Path | None = None,
        agent_idle_exit_seconds: float = 300.0,
        keep_alive_seconds: float = 30.0,
        keep_builds: bool = False,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        """A silent job learns of its cancellation with the answer to its next keep-alive.

        `environment` is that of all runners, in place of what the configuration says. `jobs` is the folder for what
        belongs to jobs on this machine: the agent's, working directories, caches.
        With `keep_builds` every job has a working directory of its own, and that of a failed one stays: see `kept`.
        """
        self._config = config
        self._limits = Limits(keep_alive=keep_alive_seconds, gathering=GATHERING_SECONDS)
        self._data = data
        self._keep_builds = keep_builds
        self._on_job_over = on_job_over
        self._clock = clock or SystemClock()
        if environment is not None:
            self._environments = Environments(lambda _: environment, lambda _: "given")
        else:
            jobs = data if jobs is None else jobs
            self._environments = Environments(
                lambda runner: make_environment(
                    runner, jobs, self._clock, agent_idle_exit_seconds=agent_idle_exit_seconds
                ),
                identity,
            )

    async def run(
        self, stop: asyncio.Event, *, drain: asyncio.Event | None = None, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until told to stop or drained. ManagerError says why it cannot start."""
        config, beside = self._load()
        raise_limit()
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(DataFolder(self._data, beside_config=beside))
            session = await stack.enter_async_context(new_session())
            stack.push_async_callback(self._environments.close_unused, ())
            manager = Manager(
                config,
                folder=folder,
                session=session,
                environments=self._environments,
                clock=self._clock,
                limits=self._limits,
                keeps_in=self._data if self._keep_builds else None,
                on_job_over=self._on_job_over,
            )
            if manager.exporter is not None:
                await stack.enter_async_context(manager.exporter)
            if config.listen_address:
                await stack.enter_async_context(serve_metrics(config.listen_address, manager.metrics))
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


class _Runner:
    """A configured runner at work."""

    __slots__ = ("client", "config", "environment", "link", "poller", "settings", "settings_name")

    def __init__(
        self, config: RunnerConfig, client: RunnerClient, environment: Environment, link: AgentLink | None
    ) -> None:
        self.config = config
        self.client = client
        self.environment = environment
        self.link = link
        self.settings = msgspec.json.encode(config)
        self.settings_name = settings_name(self.settings)
        self.poller: Poller | None = None


class Manager:
    """All parts of a running manager."""

    def __init__(
        self,
        config: ManagerConfig,
        *,
        folder: DataFolder,
        session: HttpSession,
        environments: Environments,
        clock: Clock,
        limits: Limits,
        keeps_in: Path | None = None,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_job_over = on_job_over
        self._jobs: dict[str, ManagedJob] = {}
        self.metrics = ManagerMetrics(self._samples)
        self.metrics.configured(config, folder.own_id)
        self.metrics.configuration_loaded()
        self.metrics.watch(lambda: self.load, lambda: self.pollers)
        self.exporter = _exporter(clock, folder.own_id, self.metrics.spans)
        """Who sends spans, until it is left; None where nobody wants them."""
        self._config = config
        self._folder = folder
        self._session = session
        self._environments = environments
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._links = Links(clock, self._supervised)
        self._around = Surroundings(
            links=self._links,
            journal=folder.journal,
            clock=clock,
            system_id=folder.own_id,
            limits=limits,
            keeps_in=keeps_in,
            staged=self.metrics.staged,
            spans_of=_spans_of(self.exporter),
        )
        self._room = Room(
            concurrent=config.concurrent, limits={runner.short_token: runner.limit for runner in config.runners}
        )
        self._job_tasks: set[asyncio.Task[None]] = set()
        self._poller_tasks: set[asyncio.Task[None]] = set()
        self._log = logger("manager")
        self._runners = [self._made(runner) for runner in config.runners]
        self._gone: dict[str, tuple[RunnerConfig, RunnerClient]] = {}  # runners of earlier configurations, by settings

    async def serve(self, stop: asyncio.Event, drain: asyncio.Event, ready: Callable[[], None]) -> None:
        """Until stopped or drained."""
        async with self._group:
            tasks = [self._supervised("sender of spans", self.exporter.run)] if self.exporter is not None else []
            self._find_jobs()
            self._begin_asking(self._runners)
            self._log.info("the manager serves", version=__version__, runners=len(self._runners), jobs=len(self._jobs))
            self.metrics.state("running")
            ready()
            try:
                await self._until_over(stop, drain)
            finally:
                for task in [*self._poller_tasks, *self._job_tasks, *tasks]:
                    task.cancel()
                self._links.close()

    def _made(self, config: RunnerConfig) -> _Runner:
        environment = self._environments.of(config)
        return _Runner(config, self._client(config), environment, None)

    def _begin_asking(self, runners: Sequence[_Runner]) -> None:
        asking = Asking(
            room=self._room,
            clock=self._clock,
            check_interval_seconds=self._config.check_interval_seconds / len(self._runners),
            take=self._take,
            told=self.metrics.told(),
        )
        for one in runners:
            machine = standing_machine(one.environment)
            one.link = self._links.use(one.environment, machine) if machine else None
            ready = one.link.connected.wait if one.link is not None else None
            one.poller = Poller(one.config, one.client, asking, one.environment, ready=ready)
            task = self._supervised(f"poller of {one.config.short_token}", one.poller.run)
            self._poller_tasks.add(task)
            task.add_done_callback(self._poller_tasks.discard)

    async def _until_over(self, stop: asyncio.Event, drain: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as waiting:
            stopped = waiting.create_task(stop.wait(), name="stop")
            draining = waiting.create_task(drain.wait(), name="drain")
            tending = waiting.create_task(self._tend(), name="tend")
            await asyncio.wait({stopped, draining, tending}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done() and not tending.done():
                self.metrics.state("graceful-shutdown")
                self._log.info("no more jobs are asked for", running=len(self._jobs))
                for one in self._runners:
                    if one.poller is not None:
                        one.poller.retire()
                limit = waiting.create_task(self._clock.sleep(self._config.drain_seconds), name="drain limit")
                ends = (stopped, limit, tending)
                while (left := self._job_tasks | self._poller_tasks) and not any(end.done() for end in ends):
                    await asyncio.wait({*ends, *left}, return_when=asyncio.FIRST_COMPLETED)
                limit.cancel()
            if self._jobs:
                self._log.info("jobs are left to the agent; a new start goes on with them", jobs=len(self._jobs))
            for waiter in (stopped, draining, tending):
                waiter.cancel()

    async def _tend(self) -> None:
        """Look now and then after what tells nobody when it changes; returns when the manager cannot go on."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self._links.close_idle()
            self._room.serve()
            if not self._folder.is_there():
                await self._renew_folder()

    async def _renew_folder(self) -> None:
        self._log.error("the data folder is gone from under the manager; it is made anew", jobs=len(self._jobs))
        try:
            await self._folder.renew()
        except (OSError, sqlite3.Error) as error:
            self._log.error("the data folder cannot be made anew; jobs wait", cause=str(error))

    def _find_jobs(self) -> None:
        """Go on with the jobs of an earlier process."""
        found = self._folder.journal.jobs()
        known = self._folder.journal.settings() if found else {}
        for row, record in found:
            self._room.adopt(Slot(row.runner, row.slot))
            config, client = self._runner_of(row, known.get(row.settings))
            self._begin(row, record, config, client, self._environments.of(config))

    def _runner_of(self, row: JobRow, settings: bytes | None) -> tuple[RunnerConfig, RunnerClient]:
        """The runner that took a job, as it was configured then, also when it is not any more: its job still ends."""
        now = next(
            (one for one in self._runners if one.config.short_token == row.runner and one.client.url == row.url), None
        )
        if now is not None and (settings is None or now.settings_name == row.settings):
            return now.config, now.client
        if row.settings not in self._gone:
            config = RunnerConfig(name=row.runner_name, url=row.url, token=row.runner, executor="shell")
            if settings is not None:
                config = msgspec.json.decode(settings, type=RunnerConfig)
            self._gone[row.settings] = config, now.client if now is not None else self._client(config)
        return self._gone[row.settings]

    async def _take(self, runner: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        """Store a job that came; from then on it is ours."""
        reach("manager.received")
        payload = offer.payload
        assert payload is not None
        key = job_key(payload.id, payload.token)
        if key in self._jobs:
            return False
        one = next(one for one in self._runners if one.config is runner)
        row = JobRow(
            key=key,
            job_id=payload.id,
            url=one.client.url,
            runner=runner.short_token,
            runner_name=runner.name,
            slot=slot.number,
            sends_results=offer.is_remuda,
            received_at=self._clock.now(),
            api_version=VERSION,
            payload=offer.body,
            settings=one.settings_name,
        )
        record = Record(machine=standing_machine(one.environment))
        try:
            await self._folder.journal.add(row, record, one.settings)
        except sqlite3.Error as error:
            self._log.error("a job is not taken: the journal cannot be written", job=payload.id, cause=str(error))
            return False
        reach("manager.journaled")
        self.metrics.received(runner, payload.job_info, mode=mode_of(payload), now=self._clock.now())
        self._log.info("a job came", job=payload.id, runner=runner.short_token, slot=slot.number)
        self._begin(row, record, runner, one.client, one.environment)
        return True

    def _begin(
        self, row: JobRow, record: Record, runner: RunnerConfig, client: RunnerClient, environment: Environment
    ) -> ManagedJob:
        job = ManagedJob(row, record, runner=runner, client=client, environment=environment, around=self._around)
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
        self.metrics.finished(job.labels, seconds=seconds, failure_reason=reason, mode=job.mode)
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
            on_retry=self.metrics.retried,
        )

    @property
    def load(self) -> Load:
        """What the slots are used for."""
        room = self._room
        return Load(running=len(self._jobs), asking=room.asking, free=room.free)

    @property
    def pollers(self) -> list[Poller]:
        """Who asks for jobs."""
        return [one.poller for one in self._runners if one.poller is not None]

    def _labels(self, runner: RunnerConfig) -> RunnerLabels:
        return RunnerLabels(runner=runner.short_token, runner_name=runner.name, system_id=self._around.system_id)

    def _samples(self) -> Iterable[JobSample]:
        return [JobSample(labels=job.labels, state=job.state, stage=job.stage) for job in self._jobs.values()]
