"""The parts of a running manager, put together and supervised: pollers, jobs, links, the look after everything else.

A part that fails in a way nobody foresaw is begun anew, see `restarting.py`.
Decided here: which runners ask for jobs under a configuration, and when the manager is done. `service.py` gives it the
data folder and configurations; what jobs do is in `jobs.py`, how slots are shared in `room.py`.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from remuda import __version__
from remuda.lib.clock import Clock
from remuda.lib.killpoints import reach
from remuda.manager.config import ManagerConfig, RunnerConfig
from remuda.manager.core.folders import Folders
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import Phase, Record
from remuda.manager.core.slots import Slot
from remuda.manager.data_folder import DataFolder
from remuda.manager.environments import Environments
from remuda.manager.errors import ManagerError, NotStoredError
from remuda.manager.exporting import exporter_of, spans_of
from remuda.manager.jobs import ManagedJob
from remuda.manager.journal import JobRow
from remuda.manager.link import AgentLink
from remuda.manager.links import Links
from remuda.manager.looking import Looking
from remuda.manager.metrics import JobSample, Load, ManagerMetrics, mode_of
from remuda.manager.polling import Asking, Poller
from remuda.manager.ports import Environment, standing_machine
from remuda.manager.recovery import Note, Searches, is_ours, lost_jobs
from remuda.manager.reload import Changes, changes
from remuda.manager.restarting import begun_anew
from remuda.manager.room import Room
from remuda.manager.runners import Clients, ServedRunner, Takers
from remuda.manager.scaling import Scaling, all_found, discard
from remuda.manager.surroundings import Surroundings
from remuda.manager.translating import job_key, refuse
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient
from remuda.wire.http_session import HttpSession
from remuda.wire.runner_api import VERSION
from remuda.wire.runner_client import JobOffer, RunnerClient, identity_in

LOOK_SECONDS = 1.0
"""How often is looked after what tells nobody when it changes."""
FINDING_SECONDS = 20.0
"""How long new jobs wait for old ones to be found; machines that answer later are asked when they do."""

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
        self._on_job_over = on_job_over
        self._jobs: dict[str, ManagedJob] = {}
        self._folders = Folders()
        self.metrics = ManagerMetrics(self._samples)
        self.metrics.configured(config, folder.own_id)
        self.metrics.configuration_loaded()
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
        self._takers = Takers(self._clients)
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
        self._retiring: list[ServedRunner] = []
        self._asked: dict[tuple[str, str], Poller] = {}
        self._job_tasks: set[asyncio.Task[None]] = set()
        self._poller_tasks: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        """No job is left, and nobody asks for one."""
        self._found = asyncio.Event()
        """Jobs of earlier processes were looked for."""
        self._problem: ManagerError | None = None

    @property
    def system_id(self) -> str:
        """By which servers know it."""
        return self._folder.own_id

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
            self._go_on_with_jobs()
            self.scaling.serve(self._runners, self._room)
            self.scaling.follow(self._environments)
            if self._around.recovers:
                self._searches.follow(self._environments)
                tasks.append(self._supervised("finding of jobs", self._find_jobs))
            else:
                self._found.set()
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
            ready = one.link.ready if one.link is not None else self._found.wait
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
        for job in self.jobs:
            job.release()
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
            if len(set(map(id, used))) < len(list(self._environments)):
                # What a link still goes to is closed after the link.
                used += [job.environment for job in self.jobs] + [link.environment for link in self.links]
                self._environments.end_unused(used, self._supervised, discard)
            self.scaling.follow(used)
            if self._around.recovers:
                self._searches.follow(used)
            self._problem = await self._folder.kept(jobs=len(self._jobs))

    def _is_still_used(self, one: ServedRunner) -> bool:
        """Whether a retired runner may still bring a job; otherwise its link is let go."""
        if one.task is not None and not one.task.done():
            return True
        if one.link is not None:
            self.links.let_go(one.link)
            one.link = None
        return False

    # Jobs of earlier processes.

    def _go_on_with_jobs(self) -> None:
        """Those in the journal."""
        found = self._folder.journal.jobs()
        known = self._folder.journal.settings() if found else {}
        for row, record in found:
            try:
                config, client = self._taker(row, known.get(row.settings))
                environment = self._environments.of(config)
            except Exception as error:  # noqa: BLE001 - one job that cannot be served must not keep the others waiting
                self._log.error("a job of the journal cannot be gone on with; it stays", job=row.job_id, exc_info=error)
                continue
            self._begin(row, record, config, client, environment)

    def _taker(self, row: JobRow, settings: bytes | None) -> tuple[RunnerConfig, RunnerClient]:
        return self._takers.of(row, settings, served=self._runners, concurrent=self.config.concurrent)

    async def _find_jobs(self) -> None:
        """Those that only agents know; who asks for new jobs waits for it, but not for ever."""
        await self._searches.finished(FINDING_SECONDS)
        self._found.set()

    async def _inspect(self, link: AgentLink, client: AgentClient) -> None:
        """Take up what is ours and not in the journal, before anything else happens over a new connection."""
        own_id, runners = self._folder.own_id, {one.identity for one in self._runners}

        def ours(note: Note) -> bool:
            return is_ours(note, system_id=own_id, runners=runners)

        for row in await lost_jobs(client, link.machine, is_known=self._jobs.__contains__, is_ours=ours):
            if row.key in self._jobs:
                continue
            record = Record(phase=Phase.FOUND, machine=link.machine)
            try:
                await self._folder.journal.add(row, record)
            except sqlite3.Error as error:
                self._log.error("a job that was found is not taken up", job=row.job_id, cause=str(error))
                continue
            if row.key in self._jobs:  # two names may lead to the same machine
                continue
            reach("manager.found")
            self._log.warning("a job was found that the journal did not know", job=row.job_id, machine=link.machine)
            config, job_client = self._taker(row, None)
            self._begin(row, record, config, job_client, link.environment)

    # Jobs.

    async def _take(self, runner: RunnerConfig, offer: JobOffer, slot: Slot) -> bool:
        """Store a job that came; from then on it is ours."""
        reach("manager.received")
        payload = offer.payload
        assert payload is not None
        key = job_key(payload.id, payload.token)
        if key in self._jobs:
            return False
        one = next(one for one in (*self._runners, *self._retiring) if one.config is runner)
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
            manager=self._folder.mark,
        )
        record = Record(machine=standing_machine(one.environment))
        try:
            await self._folder.journal.add(row, record, one.settings)
        except sqlite3.Error as error:
            raise NotStoredError(f"the journal cannot be written: {error}") from error
        reach("manager.journaled")
        self.metrics.received(runner, payload.job_info, mode=mode_of(payload), now=self._clock.now())
        self._log.info("a job came", job=payload.id, runner=runner.short_token, slot=slot.number)
        return self._begin(row, record, runner, one.client, one.environment, slot=slot)

    def _begin(
        self,
        row: JobRow,
        record: Record,
        runner: RunnerConfig,
        client: RunnerClient,
        environment: Environment,
        *,
        slot: Slot | None = None,
    ) -> bool:
        """Go on with a job, in the slot that was reserved for it or in that which it had; False: nobody can."""
        is_waiting = record.phase in (Phase.RECEIVED, Phase.ACKNOWLEDGED)
        try:
            job = ManagedJob(row, record, runner=runner, client=client, environment=environment, around=self._around)
        except Exception as error:  # noqa: BLE001 - it would come again with every start, and take all others along
            self._log.error("a job cannot be gone on with; it stays in the journal", job=row.job_id, exc_info=error)
            # What an agent has may be found there, with a payload that can be read.
            if is_waiting and (told := identity_in(row.payload)):
                self._note(self._job_tasks, self._supervised(f"refusal of {row.key}", partial(refuse, client, *told)))
            return False
        self._folders.hold(row.key, slot or self._room.adopt(Slot(row.runner, row.slot)), row.slot)
        if is_waiting and not self._takers.knows(runner):
            cause = f"its runner {row.runner} is not configured any more, and nobody knows how it was"
            job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause, self._clock.monotonic())
        self._jobs[row.key] = job
        if self.state == "draining":
            job.release()
        self._note(self._job_tasks, self._supervised(f"job {row.key}", partial(self._finish, job)))
        return True

    def _settle(self, job: ManagedJob) -> int:
        def is_beside(key: str) -> bool:
            other = self._jobs[key]
            return other.environment is job.environment and other.life.machine == job.life.machine

        return self._folders.settle(job.key, is_beside)

    async def _finish(self, job: ManagedJob) -> None:
        await job.run()
        del self._jobs[job.key]
        self._room.release(self._folders.let_go(job.key))
        outcome = job.life.outcome
        reason = outcome.reason if outcome is not None else FailureReason.JOB_CANCELED
        seconds = self._clock.now() - job.received_at
        self.metrics.finished(job.labels, seconds=seconds, failure_reason=reason, mode=job.mode)
        self.metrics.used(job.labels, job.used)
        # Of what is no failure of the job, its own log need not say why: its disk may have been full.
        is_ours = reason == FailureReason.RUNNER_SYSTEM_FAILURE
        cause = {"cause": outcome.message} if outcome is not None and is_ours else {}
        self._log.info("a job is over", job=job.job_id, reason=reason, seconds=round(seconds, 3), **cause)
        self._on_job_over()

    def _note(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: self._quiet.set())

    def _supervised(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """A task of it."""
        return self._group.create_task(begun_anew(name, work, self._clock), name=name)

    def _samples(self) -> Iterable[JobSample]:
        return [JobSample(labels=job.labels, state=job.state, stage=job.stage) for job in self._jobs.values()]


def _limits(config: ManagerConfig) -> dict[str, int]:
    return {runner.short_token: runner.limit for runner in config.runners}
