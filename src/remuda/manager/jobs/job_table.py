"""The jobs that a manager has: those that came, those that its journal knows, and those that were found at agents.

Decided here: who goes on with a job, in which slot, and when that cannot be done; what becomes of a job is in
`jobs.py`. `supervision.py` makes the table, has offers put into it, and runs what it starts.

Invariants: a job is in the journal before it is here; a key is here once; a job holds a slot until it is over.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from remuda.lib.killpoints import reach
from remuda.manager.config.load import RunnerConfig
from remuda.manager.core.folders import Folders
from remuda.manager.core.record import Phase, Record
from remuda.manager.core.slots import Slot
from remuda.manager.environments.kinds import Environments
from remuda.manager.environments.port import Environment, standing_machine
from remuda.manager.errors import NotStoredError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.job_context import Surroundings
from remuda.manager.jobs.journal import JobRow
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.recovery import Note, is_ours, lost_jobs
from remuda.manager.jobs.wire_mapping import job_key, refuse
from remuda.manager.metrics.metrics import JobSample, ManagerMetrics, mode_of
from remuda.manager.polling.room import Room
from remuda.manager.process.data_folder import DataFolder
from remuda.manager.process.runners import ServedRunner, Takers
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient
from remuda.wire.runner_api import VERSION
from remuda.wire.runner_client import JobOffer, RunnerClient, identity_in


class JobTable:
    """The jobs, by their keys."""

    def __init__(
        self,
        jobs: dict[str, ManagedJob],
        *,
        folder: DataFolder,
        environments: Environments,
        takers: Takers,
        around: Surroundings,
        room: Room,
        metrics: ManagerMetrics,
        served: Callable[[], Iterable[ServedRunner]],
        concurrent: Callable[[], int],
        start: Callable[[str, Callable[[], Awaitable[None]]], None],
        on_over: Callable[[], None],
    ) -> None:
        """`jobs` is filled here only. `served` are the configured runners; `start` makes a supervised task."""
        self._jobs = jobs
        self._folder = folder
        self._environments = environments
        self._takers = takers
        self._around = around
        self._room = room
        self._metrics = metrics
        self._served = served
        self._concurrent = concurrent
        self._start = start
        self._on_over = on_over
        self._clock = around.clock
        self._folders = Folders()
        self._is_draining = False
        self._log = logger("manager")

    def drain(self) -> None:
        """From now on no job is held when it has failed: its end is waited for."""
        self._is_draining = True
        for job in list(self._jobs.values()):
            job.release()

    def settle(self, job: ManagedJob) -> int:
        """The number of the slot whose folder nobody else has on the job's machine."""

        def is_beside(key: str) -> bool:
            other = self._jobs[key]
            return other.environment is job.environment and other.life.machine == job.life.machine

        return self._folders.settle(job.key, is_beside)

    def go_on(self) -> None:
        """With the jobs in the journal."""
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

    async def inspect(self, link: AgentLink, client: AgentClient) -> None:
        """Take up what is ours and not in the journal, before anything else happens over a new connection."""
        own_id, runners = self._folder.own_id, {one.identity for one in self._served()}

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

    async def take(self, taker: ServedRunner, offer: JobOffer, slot: Slot) -> bool:
        """Store a job that came; from then on it is ours. True: the slot is the job's now."""
        reach("manager.received")
        runner, payload = taker.config, offer.payload
        assert payload is not None
        key = job_key(payload.id, payload.token)
        if key in self._jobs:
            return False
        row = JobRow(
            key=key,
            job_id=payload.id,
            url=taker.client.url,
            runner=runner.short_token,
            runner_name=runner.name,
            slot=slot.number,
            sends_results=offer.is_remuda,
            received_at=self._clock.now(),
            api_version=VERSION,
            payload=offer.body,
            settings=taker.settings_name,
            manager=self._folder.mark,
        )
        record = Record(machine=standing_machine(taker.environment))
        try:
            await self._folder.journal.add(row, record, taker.settings)
        except sqlite3.Error as error:
            raise NotStoredError(f"the journal cannot be written: {error}") from error
        reach("manager.journaled")
        self._metrics.received(runner, payload.job_info, mode=mode_of(payload), now=self._clock.now())
        self._log.info("a job came", job=payload.id, runner=runner.short_token, slot=slot.number)
        return self._begin(row, record, runner, taker.client, taker.environment, slot=slot)

    def _taker(self, row: JobRow, settings: bytes | None) -> tuple[RunnerConfig, RunnerClient]:
        return self._takers.of(row, settings, served=self._served(), concurrent=self._concurrent())

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
                self._start(f"refusal of {row.key}", partial(refuse, client, *told))
            return False
        self._folders.hold(row.key, slot or self._room.adopt(Slot(row.runner, row.slot)), row.slot)
        if is_waiting and not self._takers.knows(runner):
            cause = f"its runner {row.runner} is not configured any more, and nobody knows how it was"
            job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause, self._clock.monotonic())
        self._jobs[row.key] = job
        if self._is_draining:
            job.release()
        self._start(f"job {row.key}", partial(self._finish, job))
        return True

    async def _finish(self, job: ManagedJob) -> None:
        await job.run()
        del self._jobs[job.key]
        self._room.release(self._folders.let_go(job.key))
        outcome = job.life.outcome
        reason = outcome.reason if outcome is not None else FailureReason.JOB_CANCELED
        seconds = self._clock.now() - job.received_at
        self._metrics.finished(job.labels, seconds=seconds, failure_reason=reason, mode=job.mode)
        self._metrics.used(job.labels, job.used)
        # Of what is no failure of the job, its own log need not say why: its disk may have been full.
        is_ours = reason == FailureReason.RUNNER_SYSTEM_FAILURE
        cause = {"cause": outcome.message} if outcome is not None and is_ours else {}
        self._log.info("a job is over", job=job.job_id, reason=reason, seconds=round(seconds, 3), **cause)
        self._on_over()


def samples(jobs: Iterable[ManagedJob]) -> list[JobSample]:
    """How jobs stand, for whoever counts."""
    return [JobSample(labels=job.labels, state=job.state, stage=job.stage) for job in jobs]
