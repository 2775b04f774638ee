"""The parts of a running manager, put together and supervised: pollers, jobs, links, the look after everything else.

A part that fails in a way nobody foresaw is begun anew, see `restarting.py`.
Decided here: which runners ask for jobs under a configuration, and when the manager is done. `service.py` gives it the
data folder and configurations; which jobs there are is in `job_table.py`, what they do in `jobs.py`, how slots are
shared in `room.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from remuda import __version__
from remuda.lib.clock import Clock
from remuda.manager.config.load import ManagerConfig, RunnerConfig
from remuda.manager.core.limits import Limits
from remuda.manager.core.slots import Slot
from remuda.manager.environments.kinds import Environments
from remuda.manager.environments.port import standing_machine
from remuda.manager.errors import ManagerError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.job_context import Surroundings
from remuda.manager.jobs.job_table import JobTable, samples
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.links import Links
from remuda.manager.jobs.recovery import Searches
from remuda.manager.jobs.shell import Looking
from remuda.manager.metrics.metrics import Load, ManagerMetrics
from remuda.manager.metrics.span_export import exporter_of, spans_of
from remuda.manager.polling.poller import Asking, Poller
from remuda.manager.polling.room import Room
from remuda.manager.process.data_folder import DataFolder
from remuda.manager.process.reload import Changes, changes
from remuda.manager.process.restart import begun_anew
from remuda.manager.process.runners import Clients, ServedRunner, Takers
from remuda.manager.scaling.scaling import Scaling, all_found
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_client import JobOffer

LOOK_SECONDS = 1.0
"""How often is looked after what tells nobody when it changes."""
FINDING_SECONDS = 20.0
"""How long new jobs of a runner wait for old ones to be found in its environment; machines that answer later are asked
when they do."""

Part = tuple[str, Callable[[], Awaitable[None]]]
"""Something that runs beside the rest, with its name."""


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
        recovers: bool = True,
        keeps_in: Path | None = None,
        on_job_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs: dict[str, ManagedJob] = {}
        self.metrics = ManagerMetrics(lambda: samples(self._jobs.values()))
        self.metrics.configured(config, folder.own_id)
        self.metrics.configuration_loaded()
        self.metrics.counter("remuda_manager_journals_damaged_total").inc(folder.set_aside)
        self.metrics.watch(lambda: self.load, lambda: self.pollers)
        self.exporter = exporter_of(clock, folder.own_id, self.metrics.spans)
        """Who sends spans, until it is left; None where nobody wants them."""
        self.config = config
        self.state: Literal["starting", "running", "draining", "stopping"] = "starting"
        self._folder = folder
        self._environments = environments
        environments.are_for(folder.own_id, self.metrics.of_scaling)
        self._clock = clock
        self._clients = Clients(system_id=folder.own_id, session=session, clock=clock, metrics=self.metrics)
        self._group = asyncio.TaskGroup()
        self.links = Links(clock, self._supervised, inspect=self._inspect if recovers else None)
        self._searches = Searches(self.links, self._supervised)
        self.scaling = Scaling(self._supervised)
        self._looking = Looking(clock, runners=lambda: self._runners, jobs=self._jobs)
        self._around = Surroundings(
            links=self.links,
            journal=folder.journal,
            clock=clock,
            system_id=folder.own_id,
            limits=limits,
            recovers=recovers,
            keeps_in=keeps_in,
            staged=self.metrics.staged,
            spans_of=spans_of(self.exporter),
            held=self._looking.note,
            settle=self._settle,
        )
        self._log = logger("manager")
        self._runners = [self._made(runner, config.concurrent) for runner in config.runners]
        self._room = Room(concurrent=config.concurrent, limits=_limits(config), places=self._places())
        self._table = JobTable(
            self._jobs,
            folder=folder,
            environments=environments,
            takers=Takers(self._clients),
            around=self._around,
            room=self._room,
            metrics=self.metrics,
            served=lambda: self._runners,
            concurrent=lambda: self.config.concurrent,
            start=self._run_job,
            on_over=on_job_over,
        )
        self._retiring: list[ServedRunner] = []
        self._asked: dict[tuple[str, str], Poller] = {}
        self._job_tasks: set[asyncio.Task[None]] = set()
        self._poller_tasks: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        """No job is left, and nobody asks for one."""
        self._problem: ManagerError | None = None

    @property
    def system_id(self) -> str:
        """By which servers know it."""
        return self._folder.own_id

    @property
    def damaged_journals(self) -> tuple[str, ...]:
        """Files that were the journal once."""
        return self._folder.damaged_journals

    @property
    def jobs(self) -> Sequence[ManagedJob]:
        """The jobs it has."""
        return list(self._jobs.values())

    @property
    def room(self) -> Room:
        """Its slots."""
        return self._room

    @property
    def load(self) -> Load:
        """What the slots are used for."""
        return Load(running=len(self._jobs), asking=self._room.asking, free=self._room.free)

    @property
    def pollers(self) -> list[Poller]:
        """Who asks for jobs."""
        return [one.poller for one in self._runners if one.poller is not None]

    async def serve(
        self,
        stop: asyncio.Event,
        drain: asyncio.Event,
        ready: Callable[[], None] = lambda: None,
        *,
        parts: Iterable[Part] = (),
        stopping: Callable[[], None] = lambda: None,
    ) -> None:
        """Until stopped or drained; `parts` run beside, `stopping` is told. ManagerError: it cannot go on."""
        async with self._group:
            tasks = [self._supervised(name, work) for name, work in parts]
            if self.exporter is not None:
                tasks.append(self._supervised("sender of spans", self.exporter.run))
            self._table.go_on()
            self.scaling.serve(self._runners, self._room)
            self.scaling.follow(self._environments)
            if self._around.recovers:
                self._searches.follow(self._environments)
            else:
                all_found(self._environments)
            self._begin_asking(self._runners)
            tasks.append(self._supervised("looking", self._looking.run))
            self._log.info("the manager serves", version=__version__, runners=len(self._runners), jobs=len(self._jobs))
            self._enter("running", "running")
            ready()
            try:
                await self._until_over(stop, drain)
            finally:
                self._enter("stopping", "forceful-shutdown")
                stopping()
                for task in [*self._poller_tasks, *self._job_tasks, *tasks]:
                    task.cancel()
                self._searches.follow(())
                self.scaling.follow(())
                self.links.close()
        if self._problem is not None:
            raise self._problem

    def apply(self, new: ManagerConfig) -> Changes:
        """Go on with another configuration. ConfigError: it cannot be used, and everything is as it was."""
        found = changes(self.config, new)
        config, old = found.applied, self.config
        self._environments.check(config.runners)
        # Requests tell the server how many jobs there may be, and share the interval: then all are asked for anew.
        is_wide = config.concurrent != old.concurrent or config.check_interval != old.check_interval
        is_wide = is_wide or len(config.runners) != len(old.runners)
        known = {(one.config.url, one.config.token): one for one in self._runners}
        runners: list[ServedRunner] = []
        for runner in config.runners:
            one = known.get((runner.url, runner.token))
            is_same = one is not None and one.config == runner and not is_wide
            runners.append(one if one is not None and is_same else self._made(runner, config.concurrent))
        self.scaling.serve(runners, self._room)
        former, self._runners, self.config = self._runners, runners, config
        self.metrics.configured(config, self._folder.own_id)
        self._room.change(concurrent=config.concurrent, limits=_limits(config), places=self._places())
        if self.state == "running":
            self._begin_asking([one for one in runners if one not in former])
        self._retire([one for one in former if one not in runners])
        return found

    def _made(self, config: RunnerConfig, concurrent: int) -> ServedRunner:
        return ServedRunner(config, self._clients.make(config, concurrent=concurrent), self._environments.of(config))

    def _places(self) -> dict[str, str]:
        return {one.config.short_token: str(id(one.environment)) for one in self._runners}

    def _enter(self, state: Literal["running", "draining", "stopping"], told: str) -> None:
        self.state = state
        self.metrics.state(told)

    def _begin_asking(self, runners: Iterable[ServedRunner]) -> None:
        asking = Asking(
            room=self._room,
            clock=self._clock,
            check_interval_seconds=self.config.check_interval_seconds / max(len(self._runners), 1),
            take=self._take,
            told=self.metrics.told(),
            unheard=self._around.hearing.problem,
        )
        for one in runners:
            if machine := standing_machine(one.environment):
                one.link = self.links.use(one.environment, machine)
            found = partial(self._searches.finished, one.environment, FINDING_SECONDS)
            ready = one.link.ready if one.link is not None else found
            after = self._asked.get(one.identity)
            one.poller = Poller(one.config, one.client, asking, one.environment, ready=ready, after=after)
            self._asked[one.identity] = one.poller
            one.task = self._supervised(f"poller of {one.config.short_token}", one.poller.run)
            self._note(self._poller_tasks, one.task)

    def _retire(self, runners: Iterable[ServedRunner]) -> None:
        """Take no more jobs for these, except what open requests bring."""
        for one in runners:
            if one.poller is not None:
                self._retiring.append(one)
                one.poller.retire()

    async def _until_over(self, stop: asyncio.Event, drain: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as waiting:
            stopped = waiting.create_task(stop.wait(), name="stop")
            draining = waiting.create_task(drain.wait(), name="drain")
            tending = waiting.create_task(begun_anew("tend", self._tend, self._clock), name="tend")
            await asyncio.wait({stopped, draining, tending}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done() and not tending.done():
                await self._drain(waiting, {stopped, tending})
            if self._jobs:
                self._log.info("jobs are left to their agents; a new start goes on with them", jobs=len(self._jobs))
            for waiter in (stopped, draining, tending):
                waiter.cancel()

    async def _drain(self, waiting: asyncio.TaskGroup, ends: "set[asyncio.Task[Any]]") -> None:
        """No more jobs; wait for those there are, but not longer than the configuration says."""
        self._enter("draining", "graceful-shutdown")
        self._log.info("no more jobs are asked for", running=len(self._jobs), seconds=self.config.drain_seconds)
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
        """Look now and then after what tells nobody when it changes; returns when the manager cannot go on."""
        while self._problem is None:
            await self._clock.sleep(LOOK_SECONDS)
            self._retiring = [one for one in self._retiring if self._is_still_used(one)]
            self.links.close_idle()
            self._room.serve()
            used = [one.environment for one in (*self._runners, *self._retiring)]
            searched = used + [job.environment for job in self.jobs]
            if len(set(map(id, used))) < len(list(self._environments)):
                # What a link still goes to is closed after the link.
                used = searched + [link.environment for link in self.links]
                self._environments.end_unused(used, self._supervised, self.scaling.leave)
            self.scaling.follow(used)
            if self._around.recovers:
                # A search has links of its own: it must not go on, nor its environment stay, because of these.
                self._searches.follow(searched)
            self._problem = await self._folder.kept(jobs=len(self._jobs))

    def _is_still_used(self, one: ServedRunner) -> bool:
        """Whether a retired runner may still bring a job; otherwise its link is let go."""
        if one.task is not None and not one.task.done():
            return True
        if one.link is not None:
            self.links.let_go(one.link)
            one.link = None
        return False

    async def _inspect(self, link: AgentLink, client: AgentClient) -> None:
        await self._table.inspect(link, client)

    def _settle(self, job: ManagedJob) -> int:
        return self._table.settle(job)

    async def _take(self, runner: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        taker = next(one for one in (*self._runners, *self._retiring) if one.config is runner)
        return await self._table.take(taker, offer, slot)

    def _run_job(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._note(self._job_tasks, self._supervised(name, work))

    def _note(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: self._quiet.set())

    def _supervised(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A task of it."""
        return self._group.create_task(begun_anew(name, work, self._clock), name=name)


def _limits(config: ManagerConfig) -> dict[str, int]:
    return {runner.short_token: runner.limit for runner in config.runners}
