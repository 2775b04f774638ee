"""Creates, connects and supervises the parts of a running manager: pollers, jobs, links to agents, scalers. A part that
fails unexpectedly is restarted (`restart_on_failure`)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from remuda import __version__
from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock
from remuda.manager.config.values import ManagerConfig, RunnerConfig
from remuda.manager.core.limits import Limits
from remuda.manager.core.slots import Slot
from remuda.manager.environments.kinds import Environments
from remuda.manager.environments.obstacles import ObstacleSearch
from remuda.manager.environments.port import fixed_machine
from remuda.manager.environments.scaled import end_recovery
from remuda.manager.errors import ManagerError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.job_context import JobContext
from remuda.manager.jobs.job_table import JobTable, sample_jobs
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.links import Links
from remuda.manager.jobs.recovery import Searches
from remuda.manager.jobs.runners import ClientFactory, RunnerLookup, ServedRunner
from remuda.manager.jobs.shell import ShellRequests
from remuda.manager.metrics.metrics import Load, ManagerMetrics
from remuda.manager.metrics.span_export import exporter_of, spans_factory
from remuda.manager.polling.poller import Poller, PollerContext
from remuda.manager.polling.room import Room
from remuda.manager.process.data_folder import DataFolder
from remuda.manager.process.reload import Changes, compare
from remuda.manager.scaling.scaling import Scaling
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import JobOffer

TEND_SECONDS = 1.0
"""Interval of the checks that no event triggers."""
RECOVERY_SECONDS = 20.0
"""How long a runner's first requests wait for jobs of an earlier process to be found in its environment. Machines that
answer later are searched then."""
GATHERING_SECONDS = 0.2
"""First log bytes and results of a job are sent when the job is this old, which people do not notice: a job that is
over by then needs half the calls."""
STEADY_SECONDS = 60.0
"""Runtime after which a part that fails is restarted after the shortest pause."""
_RESTART = Backoff(first_seconds=1.0, ceiling_seconds=60.0)

Part = tuple[str, Callable[[], Awaitable[None]]]
"""A task that runs beside the others, with its name."""


class ManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a manager that are not in its configuration file."""

    keep_alive_seconds: float = 30.0
    """A silent job calls its server this often, and learns from the answer that it is canceled."""
    agent_lost_seconds: float = Limits().agent
    """How long an agent may be unreachable before its jobs fail."""
    finds_obstacles: bool = False
    """Whether no jobs are requested while the runner's container engine, a program or folder that all its jobs need, or
    the user of its jobs cannot be used."""
    recovers: bool = True
    """Whether jobs are recovered from agents when the journal is lost. Pointless where both are in one folder."""
    keep_builds: bool = False
    """Give every job its own working directory, and keep those of failed jobs; see `kept_workdirs.py`."""
    on_job_over: Callable[[], None] = lambda: None
    on_job_start: Callable[[int, JobPayload], None] = lambda _id, _payload: None
    """Called with the id and the payload of each job before it starts."""
    on_log: Callable[[int, int, bytes], None] = lambda _id, _offset, _data: None
    """Called with each piece of a job's log: the job's id, the offset and the bytes. A piece may come twice."""

    @property
    def limits(self) -> Limits:
        return Limits(keep_alive=self.keep_alive_seconds, agent=self.agent_lost_seconds, gathering=GATHERING_SECONDS)


class Manager:
    """A running manager: creates all its parts, and runs them in one task group."""

    def __init__(
        self,
        config: ManagerConfig,
        *,
        folder: DataFolder,
        session: HttpSession,
        environments: Environments,
        clock: Clock,
        options: ManagerOptions,
    ) -> None:
        self._jobs: dict[str, ManagedJob] = {}
        self.metrics = ManagerMetrics(lambda: sample_jobs(self._jobs.values()))
        self.metrics.apply_config(config, folder.own_id)
        self.metrics.configuration_loaded()
        self.metrics.counter("remuda_manager_journals_damaged_total").inc(folder.set_aside)
        self.metrics.watch(lambda: self.load, lambda: self.pollers)
        self.exporter = exporter_of(clock, folder.own_id, self.metrics.count_spans)
        """Sends spans; None if no spans are wanted."""
        self.config = config
        self.state: Literal["starting", "running", "draining", "stopping"] = "starting"
        self._folder = folder
        self._environments = environments
        environments.set_manager(folder.own_id, self.metrics.add_scaler)
        self._clock = clock
        self._clients = ClientFactory(system_id=folder.own_id, session=session, clock=clock, metrics=self.metrics)
        self._group = asyncio.TaskGroup()
        self.links = Links(clock, self._start_task, inspect=self._recover_jobs if options.recovers else None)
        self._searches = Searches(self.links, self._start_task)
        self.scaling = Scaling(self._start_task)
        self._shells = ShellRequests(clock, runners=lambda: self._runners, jobs=self._jobs)
        self._context = JobContext(
            links=self.links,
            journal=folder.journal,
            clock=clock,
            system_id=folder.own_id,
            manager_mark=folder.mark,
            limits=options.limits,
            recovers=options.recovers,
            kept_workdirs=folder.path if options.keep_builds else None,
            on_stage_end=self.metrics.count_stage,
            on_job_start=options.on_job_start,
            on_log=options.on_log,
            make_spans=spans_factory(self.exporter),
            on_hold_change=self._shells.update_hold,
            settle=self._settle,
        )
        self._options = options
        self._log = logger("manager")
        self._runners = [self._make_runner(runner, config.concurrent) for runner in config.runners]
        self._room = Room(concurrent=config.concurrent, limits=_limits(config), places=self._places())
        self._table = JobTable(
            self._jobs,
            environments=environments,
            runners=RunnerLookup(
                self._clients, served=lambda: self._runners, concurrent=lambda: self.config.concurrent
            ),
            context=self._context,
            room=self._room,
            metrics=self.metrics,
            start=self._start_job,
            on_over=options.on_job_over,
        )
        self._retiring: list[ServedRunner] = []
        self._last_pollers: dict[tuple[str, str], Poller] = {}
        self._job_tasks: set[asyncio.Task[None]] = set()
        self._poller_tasks: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        """Set when a job or a poller ends."""
        self._problem: ManagerError | None = None

    @property
    def system_id(self) -> str:
        """The id by which servers distinguish managers that use the same runner token."""
        return self._folder.own_id

    @property
    def damaged_journals(self) -> tuple[str, ...]:
        return self._folder.damaged_journals

    @property
    def jobs(self) -> Sequence[ManagedJob]:
        return list(self._jobs.values())

    @property
    def load(self) -> Load:
        return Load(running=len(self._jobs), requesting=self._room.requesting, free=self._room.free)

    @property
    def pollers(self) -> list[Poller]:
        return [runner.poller for runner in self._runners if runner.poller is not None]

    async def serve(
        self,
        stop: asyncio.Event,
        drain: asyncio.Event,
        ready: Callable[[], None] = lambda: None,
        *,
        parts: Iterable[Part] = (),
        on_stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until `stop` is set, or `drain` is set and the jobs are over. `parts` are further tasks to run. `ready`
        is called after the start, and `on_stopping` before all tasks are cancelled. Raises ManagerError if the manager
        cannot continue."""
        async with self._group:
            tasks = [self._start_task(name, work) for name, work in parts]
            if self.exporter is not None:
                tasks.append(self._start_task("sender of spans", self.exporter.run))
            self._table.resume_journal()
            self.scaling.serve(self._runners, self._room)
            self.scaling.follow(self._environments)
            if self._context.recovers:
                self._searches.follow(self._environments)
            else:
                end_recovery(self._environments)
            self._start_pollers(self._runners)
            tasks.append(self._start_task("shell requests", self._shells.run))
            self._log.info("manager started", version=__version__, runners=len(self._runners), jobs=len(self._jobs))
            self._enter("running", "running")
            ready()
            try:
                await self._until_over(stop, drain)
            finally:
                self._enter("stopping", "forceful-shutdown")
                on_stopping()
                for task in [*self._poller_tasks, *self._job_tasks, *tasks]:
                    task.cancel()
                self._searches.follow(())
                self.scaling.follow(())
                self.links.close()
        if self._problem is not None:
            raise self._problem

    def apply(self, new: ManagerConfig) -> Changes:
        """Apply a new configuration; return what changed. Raises ConfigError, before any change, if it is unusable."""
        changes = compare(self.config, new)
        config, old = changes.applied, self.config
        self._environments.check(config.runners)
        # Requests contain the manager's capacity and share the check interval; if these change, all pollers restart.
        restarts_all = config.concurrent != old.concurrent or config.check_interval != old.check_interval
        restarts_all = restarts_all or len(config.runners) != len(old.runners)
        current = {(served.config.url, served.config.token): served for served in self._runners}
        runners: list[ServedRunner] = []
        for runner in config.runners:
            served = current.get((runner.url, runner.token))
            if served is None or served.config != runner or restarts_all:
                served = self._make_runner(runner, config.concurrent)
            runners.append(served)
        self.scaling.serve(runners, self._room)
        former, self._runners, self.config = self._runners, runners, config
        self.metrics.apply_config(config, self._folder.own_id)
        self._room.change(concurrent=config.concurrent, limits=_limits(config), places=self._places())
        if self.state == "running":
            self._start_pollers([runner for runner in runners if runner not in former])
        self._retire([runner for runner in former if runner not in runners])
        return changes

    def _make_runner(self, config: RunnerConfig, concurrent: int) -> ServedRunner:
        return ServedRunner(config, self._clients.make(config, concurrent=concurrent), self._environments.of(config))

    def _places(self) -> dict[str, str]:
        return {runner.config.short_token: str(id(runner.environment)) for runner in self._runners}

    def _enter(self, state: Literal["running", "draining", "stopping"], metric: str) -> None:
        self.state = state
        self.metrics.set_state(metric)

    def _start_pollers(self, runners: Iterable[ServedRunner]) -> None:
        context = PollerContext(
            room=self._room,
            clock=self._clock,
            check_interval_seconds=self.config.check_interval_seconds / max(len(self._runners), 1),
            take=self._take,
            events=self.metrics.poller_events(),
            job_problem=self._context.server_health.problem,
        )
        for runner in runners:
            if machine := fixed_machine(runner.environment):
                runner.link = self.links.use(runner.environment, machine)
            searched = partial(self._searches.wait, runner.environment, RECOVERY_SECONDS)
            ready = runner.link.wait_ready if runner.link is not None else searched
            after = self._last_pollers.get(runner.identity)
            runner.poller = Poller(
                runner.config,
                runner.client,
                context,
                runner.environment,
                ready=ready,
                find_obstacle=ObstacleSearch(runner.config).find if self._options.finds_obstacles else None,
                after=after,
            )
            self._last_pollers[runner.identity] = runner.poller
            runner.task = self._start_task(f"poller of {runner.config.short_token}", runner.poller.run)
            self._track(self._poller_tasks, runner.task)

    def _retire(self, runners: Iterable[ServedRunner]) -> None:
        """Stop requesting jobs for these runners. Their current jobs continue."""
        for runner in runners:
            if runner.poller is not None:
                self._retiring.append(runner)
                runner.poller.retire()

    async def _until_over(self, stop: asyncio.Event, drain: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as waiting:
            stopped = waiting.create_task(stop.wait(), name="stop")
            draining = waiting.create_task(drain.wait(), name="drain")
            tending = waiting.create_task(restart_on_failure("tend", self._tend, self._clock), name="tend")
            await asyncio.wait({stopped, draining, tending}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done() and not tending.done():
                await self._drain(waiting, {stopped, tending})
            if self._jobs:
                self._log.info("stopping with running jobs; the next start resumes them", jobs=len(self._jobs))
            for waiter in (stopped, draining, tending):
                waiter.cancel()

    async def _drain(self, waiting: asyncio.TaskGroup, ends: "set[asyncio.Task[Any]]") -> None:
        """Request no more jobs, and wait until the current ones are over, but at most for drain_timeout or until a task
        of `ends` is done (the manager must stop). Helper tasks run in the group `waiting`."""
        self._enter("draining", "graceful-shutdown")
        self._log.info(
            "draining: no more jobs are requested; waiting for running ones",
            running=len(self._jobs),
            seconds=self.config.drain_seconds,
        )
        self._retire(self._runners)
        self.scaling.drain()
        self._table.drain()
        limit = waiting.create_task(self._clock.sleep(self.config.drain_seconds), name="drain limit")
        quiet = waiting.create_task(self._until_quiet(), name="last job")
        await asyncio.wait({*ends, limit, quiet}, return_when=asyncio.FIRST_COMPLETED)
        for task in (limit, quiet):
            task.cancel()

    async def _until_quiet(self) -> None:
        while self._job_tasks or self._poller_tasks:
            self._quiet.clear()
            await self._quiet.wait()

    async def _tend(self) -> None:
        """Every second, close unused links and environments, give out free slots, start or stop scalers and searches
        for jobs, and restore a deleted data folder. Returns when the manager cannot continue."""
        while self._problem is None:
            await self._clock.sleep(TEND_SECONDS)
            self._retiring = [runner for runner in self._retiring if self._is_still_used(runner)]
            self.links.close_idle()
            self._room.serve()
            used = [runner.environment for runner in (*self._runners, *self._retiring)]
            searched = used + [job.environment for job in self.jobs]
            if len(set(map(id, used))) < len(list(self._environments)):
                # An environment is closed after the last link to it.
                used = searched + [link.environment for link in self.links]
                self._environments.end_unused(used, self._start_task, self.scaling.discard)
            self.scaling.follow(used)
            if self._context.recovers:
                # Without links: a search has links of its own, which must not keep its environment in use.
                self._searches.follow(searched)
            self._problem = await self._folder.restore_if_removed(jobs=len(self._jobs))

    def _is_still_used(self, runner: ServedRunner) -> bool:
        """True while a runner for which no more jobs are requested may still receive a job from an open request. If
        not, its link to the agent is released, and False is returned."""
        if runner.task is not None and not runner.task.done():
            return True
        if runner.link is not None:
            self.links.let_go(runner.link)
            runner.link = None
        return False

    async def _recover_jobs(self, link: AgentLink, client: AgentClient) -> None:
        await self._table.recover_jobs(link, client)

    def _settle(self, job: ManagedJob) -> int:
        return self._table.settle(job)

    async def _take(self, config: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        runner = next(runner for runner in (*self._runners, *self._retiring) if runner.config is config)
        return await self._table.take(runner, offer, slot)

    def _start_job(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._track(self._job_tasks, self._start_task(name, work))

    def _track(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: self._quiet.set())

    def _start_task(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a named task in the manager's task group. It is restarted after an unexpected error."""
        return self._group.create_task(restart_on_failure(name, work, self._clock), name=name)


async def restart_on_failure(name: str, work: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run `work` until it returns. After an unexpected error it is started again, with growing pauses."""
    failures = 0
    while True:
        started_at = clock.monotonic()
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - an unexpected failure must not end the other parts
            failures = 1 if clock.monotonic() - started_at >= STEADY_SECONDS else failures + 1
            logger("manager").error("a part of the manager failed; restarting it", failed=name, exc_info=error)
            await clock.sleep(_RESTART.delay(failures))
        else:
            return


def _limits(config: ManagerConfig) -> dict[str, int]:
    return {runner.short_token: runner.limit for runner in config.runners}
