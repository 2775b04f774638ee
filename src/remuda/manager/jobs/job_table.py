"""The jobs of a manager: from servers, from the journal (the file with all current jobs), or recovered from agents.
Invariants: jobs are in the journal before the table; a key is in it once; a job has its slot until it is over."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from remuda.lib.killpoints import reach
from remuda.manager.config.values import RunnerConfig
from remuda.manager.core.folders import Folders
from remuda.manager.core.record import JobRow, Phase, Record, job_key
from remuda.manager.core.slots import Slot
from remuda.manager.environments.kinds import Environments
from remuda.manager.environments.port import Environment, fixed_machine
from remuda.manager.errors import NotStoredError
from remuda.manager.jobs.job import ManagedJob
from remuda.manager.jobs.job_context import JobContext
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.recovery import Note, find_lost_jobs, is_ours
from remuda.manager.jobs.runners import RunnerLookup, ServedRunner
from remuda.manager.metrics.metrics import JobSample, ManagerMetrics, mode_of
from remuda.manager.polling.refusal import refuse_job
from remuda.manager.polling.room import Room
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import AgentClient
from remuda.wire.runner_api import VERSION
from remuda.wire.runner_client import JobOffer, RunnerClient, read_identity


class JobTable:
    def __init__(
        self,
        jobs: dict[str, ManagedJob],
        *,
        environments: Environments,
        runners: RunnerLookup,
        context: JobContext,
        room: Room,
        metrics: ManagerMetrics,
        start: Callable[[str, Callable[[], Awaitable[None]]], None],
        on_over: Callable[[], None],
    ) -> None:
        """`jobs` maps job keys to jobs; only this class changes it. `start` runs a function as a named task, which is
        restarted after an unexpected error. `on_over` is called each time a job is over."""
        self._jobs = jobs
        self._environments = environments
        self._runners = runners
        self._context = context
        self._room = room
        self._metrics = metrics
        self._start = start
        self._on_over = on_over
        self._clock = context.clock
        self._folders = Folders()
        self._is_draining = False
        self._log = logger("manager")

    def drain(self) -> None:
        """Keep no failed jobs for debugging from now on, because a drain waits until all jobs are over."""
        self._is_draining = True
        for job in list(self._jobs.values()):
            job.release()

    def settle(self, job: ManagedJob) -> int:
        """Return a slot number whose folder no other job on the machine uses; two jobs may swap slots for this."""

        def is_beside(key: str) -> bool:
            other = self._jobs[key]
            return other.environment is job.environment and other.life.machine == job.life.machine

        return self._folders.settle(job.key, is_beside)

    def resume_journal(self) -> None:
        """Resume the jobs in the journal. Called once, when the manager starts."""
        stored_jobs = self._context.journal.jobs()
        settings = self._context.journal.settings() if stored_jobs else {}
        for row, record in stored_jobs:
            try:
                config, client = self._runners.find(row, settings.get(row.settings))
                environment = self._environments.of(config)
            except Exception as error:  # noqa: BLE001 - one job that cannot be resumed must not stop the others
                self._log.error(
                    "cannot resume a job of the journal; the next start of the manager tries again",
                    job=row.job_id,
                    runner=row.runner,
                    exc_info=error,
                )
                continue
            self._begin(row, record, config, client, environment)

    async def recover_jobs(self, link: AgentLink, client: AgentClient) -> None:
        """Take over jobs that the agent runs, that belong to this manager, and that are missing in the journal. They
        are stored in the journal and continue. Called on every new connection to an agent, before other calls."""
        system_id, identities = self._context.system_id, self._runners.identities

        def is_own(note: Note) -> bool:
            return is_ours(note, system_id=system_id, runners=identities)

        for row in await find_lost_jobs(client, link.machine, is_known=self._jobs.__contains__, is_ours=is_own):
            if row.key in self._jobs:
                continue
            record = Record(phase=Phase.FOUND, machine=link.machine)
            try:
                await self._context.journal.add(row, record)
            except sqlite3.Error as error:
                self._log.error(
                    "cannot store a job found at its agent; trying again at the next connection",
                    job=row.job_id,
                    machine=link.machine,
                    cause=str(error),
                )
                continue
            if row.key in self._jobs:  # two names may lead to the same machine
                continue
            reach("manager.found")
            self._log.warning(
                "recovered a job that was missing in the journal; it continues",
                job=row.job_id,
                runner=row.runner,
                machine=link.machine,
            )
            config, job_client = self._runners.find(row, None)
            self._begin(row, record, config, job_client, link.environment)

    async def take(self, runner: ServedRunner, offer: JobOffer, slot: Slot) -> bool:
        """Store a received job in the journal and start it. Returns True if the job now uses `slot`, False if the table
        already has the job or it cannot run. Raises NotStoredError if the journal cannot be written."""
        reach("manager.received")
        config, payload = runner.config, offer.payload
        assert payload is not None
        key = job_key(payload.id, payload.token)
        if key in self._jobs:
            return False
        row = JobRow(
            key=key,
            job_id=payload.id,
            url=runner.client.url,
            runner=config.short_token,
            runner_name=config.name,
            slot=slot.number,
            sends_results=offer.is_remuda,
            received_at=self._clock.now(),
            api_version=VERSION,
            payload=offer.body,
            settings=runner.settings_name,
            manager=self._context.manager_mark,
        )
        record = Record(machine=fixed_machine(runner.environment))
        try:
            await self._context.journal.add(row, record, runner.settings)
        except sqlite3.Error as error:
            raise NotStoredError(f"the journal cannot be written: {error}") from error
        reach("manager.journaled")
        self._metrics.count_received(config, payload.job_info, mode=mode_of(payload), now=self._clock.now())
        self._log.info("job received", job=payload.id, runner=config.short_token, slot=slot.number)
        return self._begin(row, record, config, runner.client, runner.environment, slot=slot)

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
        """Start a job. It uses the reserved `slot`; without one (a job of an earlier process), the slot in its journal
        row, or another if that is taken. Returns False if the job cannot be run, for example because its payload is
        invalid. It is then reported to the server as failed, unless the journal says that the agent already has it."""
        is_waiting = record.phase in (Phase.RECEIVED, Phase.ACKNOWLEDGED)
        try:
            job = ManagedJob(row, record, runner=runner, client=client, environment=environment, context=self._context)
        except Exception as error:  # noqa: BLE001 - it would fail again at every start, and stop all other jobs
            identity = read_identity(row.payload) if is_waiting else None
            self._log.error(
                "cannot run a stored job; it stays in the journal for the next start of the manager",
                job=row.job_id,
                runner=row.runner,
                then="reporting it to the server as failed" if identity else "recovering it if its agent has it",
                exc_info=error,
            )
            # A job that its agent has may be recovered from there, with a readable payload.
            if identity:
                self._start(f"refusal of {row.key}", partial(refuse_job, client, *identity))
            return False
        self._folders.assign(row.key, slot or self._room.adopt(Slot(row.runner, row.slot)), row.slot)
        if is_waiting and self._runners.is_placeholder(runner):
            cause = f"its runner {row.runner} is not configured any more, and its former settings are unknown"
            job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause, self._clock.monotonic())
        self._jobs[row.key] = job
        if self._is_draining:
            job.release()
        self._start(f"job {row.key}", partial(self._run, job))
        return True

    async def _run(self, job: ManagedJob) -> None:
        await job.run()
        del self._jobs[job.key]
        self._room.release(self._folders.let_go(job.key))
        outcome = job.life.outcome
        reason = outcome.reason if outcome is not None else FailureReason.JOB_CANCELED
        seconds = self._clock.now() - job.received_at
        self._metrics.count_finished(job.labels, seconds=seconds, failure_reason=reason, mode=job.mode)
        self._metrics.count_usage(job.labels, job.used)
        # The job's own log may lack the cause of a system failure, for example a full disk.
        is_system_failure = reason == FailureReason.RUNNER_SYSTEM_FAILURE
        cause = {"cause": outcome.message} if outcome is not None and is_system_failure else {}
        self._log.info(
            "job finished", job=job.job_id, runner=job.runner, reason=reason, seconds=round(seconds, 3), **cause
        )
        self._on_over()


def sample_jobs(jobs: Iterable[ManagedJob]) -> list[JobSample]:
    return [JobSample(labels=job.labels, state=job.state, stage=job.stage) for job in jobs]
