"""One job: performs what its `Life` decides, and stores what must survive before the next decision.

The loop is the same for a job that just came and for one out of the journal. Everything here may happen twice: calls
to server and agent are repeatable, and the kill points mark where a process may die between the two sides.
"""

import math
import sqlite3
import zlib
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from remuda.lib.killpoints import reach
from remuda.manager.compile import kept_workdirs
from remuda.manager.compile.start_request import Starting, start_of
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.config.load import RunnerConfig
from remuda.manager.core.actions import (
    Acknowledge,
    Acquire,
    Action,
    Call,
    CancelSteps,
    Close,
    Forget,
    KeepAlive,
    SendFinal,
    SendResults,
    SendTrace,
    Start,
    Subscribe,
    Wait,
)
from remuda.manager.core.life import Life
from remuda.manager.core.record import Phase, Record, again_bytes
from remuda.manager.core.relay import CHUNK_BYTES
from remuda.manager.environments.port import Environment, PreparedPlace, standing_machine
from remuda.manager.errors import ConnectingError, EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs.job_context import Surroundings
from remuda.manager.jobs.journal import JobRow
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.placement import in_slot, place_of, put_away
from remuda.manager.jobs.recovery import owner_note
from remuda.manager.jobs.waiting import Bell, Hindrance, beside
from remuda.manager.jobs.wire_mapping import ask_server, outcome_of, step_name
from remuda.manager.metrics.metrics import RunnerLabels, mode_of
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import JobEnded, JobUse, LogChunk, StepResultEvent, UnknownJob, WatchedEvent
from remuda.wire.agent_shell import AgentShell, ShellWish, open_shell
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import RunnerClient, read_payload
from remuda.wire.runner_server import RunnerApiTemporaryError

T = TypeVar("T")
_JOURNAL_SECONDS = 1.0
"""How long to wait before writing again when the journal could not be written."""


class ManagedJob:
    """A job the manager has."""

    def __init__(
        self,
        row: JobRow,
        record: Record,
        *,
        runner: RunnerConfig,
        client: RunnerClient,
        environment: Environment,
        around: Surroundings,
    ) -> None:
        payload = read_payload(row.payload)
        self.key = row.key
        self.job_id = row.job_id
        self.slot: int = row.slot
        self.runner = row.runner
        self.labels = RunnerLabels(runner=row.runner, runner_name=row.runner_name, system_id=around.system_id)
        self.mode = mode_of(payload)
        self.used = JobUse()
        """What it took of the machine, known at its end."""
        self.stage = "prepare_executor"
        self.stage_since = around.clock.now()
        self.received_at = row.received_at
        self.hindrance = Hindrance()
        self._token = payload.token
        self._config = runner
        self._client = client
        self.environment = environment
        self._around = around
        self._link: AgentLink | None = None  # from when it has a machine until that is lost or the job is over
        self._is_ready = False  # its place is prepared and the operator's hook has run
        self._is_remuda = row.sends_results
        self._is_unwanted = False  # it is not held if it fails
        self._row: JobRow | None = row  # like the payload
        self._payload: JobPayload | None = payload  # only until the agent has it: thousands of jobs may be held
        self._place = place_of(row, payload, runner, has_own_folder=around.keeps_in is not None)
        if record.machine:
            environment.adopt(self._place, record.machine)
        self._saved, self._saved_at = record, around.clock.monotonic()
        self._again_bytes = again_bytes(runner.remuda.log_waiting_limit_bytes)
        self._is_stuck = False  # what is to be saved cannot be
        self._spans = None if around.spans_of is None else around.spans_of(row, payload)
        self._bell = Bell(around.clock, f"job {row.key}")
        self._log = logger("manager").bind(job=row.job_id, runner=row.runner)
        now = around.clock.monotonic()
        self.life = Life(
            record,
            now=now,
            epoch=around.clock.now() - now,
            sends_results=row.sends_results,
            accepted_reasons=(payload.features.failure_reasons or ()) if payload.features else (),
            jitter=zlib.crc32(row.key.encode()) % 1000 / 1000,
            limits=around.limits,
        )
        if record.phase not in (Phase.RECEIVED, Phase.ACKNOWLEDGED):
            self._payload = self._row = None

    @property
    def state(self) -> str:
        """In the words of gitlab-runner's metrics."""
        match self.life.phase:
            case Phase.RECEIVED | Phase.ACKNOWLEDGED:
                return "pending"
            case Phase.STARTED | Phase.FOUND:
                return "running"
            case Phase.ENDED | Phase.HELD | Phase.OVER:
                return "finished"

    async def run(self) -> None:
        """Carry the job to its end; returns when nothing of it is left here."""
        self._connect()
        self._around.hearing.begin(self.runner)
        try:
            if self.life.phase is Phase.HELD:
                self._around.held(self)
            while True:
                if not await self._save():
                    continue
                self._bell.clear()
                action = self.life.next(self._around.clock.monotonic())
                if isinstance(action, Forget):
                    await self._around.journal.remove(self.key)
                    if self._spans is not None:
                        self._spans.end(self.life.outcome, self._around.clock.now())
                    return
                await self._perform(action)
        finally:
            self._around.hearing.over(self.runner, self.key)
            self._around.held(self)
            self._disconnect()

    def _connect(self) -> None:
        if self.life.machine and self._link is None:
            self._link = self._around.links.use(self.environment, self.life.machine)
            self._link.listen(self.key, self, is_found=self.life.phase is Phase.FOUND)

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.forget(self.key)
            self._around.links.let_go(self._link)
            self._link = None

    def _linked(self) -> AgentLink:
        if self._link is None:
            raise EnvironmentLostError("there is no machine any more")
        return self._link

    async def _save(self) -> bool:
        """Store what changed; only then may the next step be taken and the agent drop what it kept for us."""
        record, now = self.life.record, self._around.clock.monotonic()
        if not record.is_worth_storing(self._saved, seconds=now - self._saved_at, again_bytes=self._again_bytes):
            return True
        try:
            await self._around.journal.save(self.key, record)
        except sqlite3.Error as error:
            if not self._is_stuck:
                self._log.error("the journal cannot be written; the job waits", cause=str(error))
            self._is_stuck = True
            await self._around.clock.sleep(_JOURNAL_SECONDS)
            return False
        self._saved, self._saved_at, self._is_stuck = record, now, False
        if self._link is not None:
            self._link.confirm(self.key, log_offset=record.log_offset, result_seq=record.result_seq)
        return True

    async def _perform(self, action: Action) -> None:
        try:
            match action:
                case Acknowledge() | SendTrace() | SendResults() | KeepAlive() | SendFinal():
                    await self._call(action)
                case Acquire() | Start() if self._late_at() <= self._around.clock.monotonic():
                    raise EnvironmentLostError(self._too_late)
                case Acquire():
                    await self._acquire()
                case Start():
                    await self._start()
                case Subscribe():
                    link = self._linked()
                    self.life.subscribed()
                    link.subscribe(self.key)
                case CancelSteps():
                    self._log.info("canceling the job")
                    await self._linked().cancel(self.key)
                    self.life.cancel_told()
                case Close():
                    await self._close(tells_agent=action.tells_agent)
                case Wait():
                    await self._bell.until(action.until)
        except EnvironmentTemporaryError as error:
            if self.hindrance.is_new(str(error)):
                say = self._log.info if isinstance(error, ConnectingError) else self._log.warning
                say("the job waits for its environment", cause=str(error))
            self.agent_failed(str(error))
        except EnvironmentLostError as error:
            self._fail(FailureReason.RUNNER_SYSTEM_FAILURE, str(error))
        except Exception as error:
            # Tried again for ever, a job that cannot be started would keep its slot and its user waiting.
            if not isinstance(action, Acquire | Start):
                raise
            self._log.error("the job cannot be started", exc_info=error)
            cause = f"the manager could not start it: {type(error).__name__}; its log says where"
            self._fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause)

    async def _call(self, call: Call) -> None:
        before = self.life.phase
        try:
            reply = await ask_server(self._client, self.job_id, self._token, call)
        except RunnerApiTemporaryError as error:
            self._around.hearing.unanswered(self.runner, self.key, str(error))
            self.life.unreachable(self._around.clock.monotonic(), str(error))
            return
        self._around.hearing.answered(self.runner, self.key)
        match call, reply.status:
            case Acknowledge(), 200:
                reach("manager.acknowledged")
            case SendTrace(), 200 | 201 | 202 | 204:
                reach("manager.trace_sent")
            case SendResults(), 200 | 201 | 202 | 204:
                reach("manager.result_sent")
            case SendFinal(), 200:
                reach("manager.finished")
        self.life.replied(call, reply, self._around.clock.monotonic())
        if self.life.phase is Phase.HELD and before is not Phase.HELD:
            self._log.info("the job failed and is held", seconds=round(self.held_seconds))
            reach("manager.held")
            self._around.held(self)
        if self.life.phase is Phase.OVER and before is not Phase.OVER and self.life.problem:
            self._log.warning("the job is dropped", cause=self.life.problem)

    async def _acquire(self) -> None:
        machine = await self._while_heard(self.environment.acquire(self._place))
        if machine is not None:
            reach("manager.acquired")
            self.life.placed(machine)
            self._connect()
            self._log.info("the job has a machine", machine=machine)

    async def _start(self) -> None:
        payload, row = self._payload, self._row
        assert payload is not None, "a job is started once"
        assert row is not None
        self._linked().need()
        self._row = row = await in_slot(row, self._around.settle(self), self.life.record, self._around.journal)
        if row.slot != self.slot:
            own = self._around.keeps_in is not None
            self.slot, self._place = row.slot, place_of(row, payload, self._config, has_own_folder=own)
        if (place := await self._prepare()) is None:
            return
        starting = Starting(
            runner=self._config,
            place=self._place,
            prepared=place,
            system_id=self._around.system_id,
            now=self._around.clock.now(),
            may_shell=self.allows_shells,
            is_held=not self._is_unwanted,
        )
        try:
            start, variables = start_of(payload, starting)
        except CompileError as error:
            self._fail(FailureReason.RUNNER_CONFIGURATION_ERROR, str(error))
            return
        if self._around.keeps_in is not None:
            kept_workdirs.keep(self._around.keeps_in, self.job_id, work_dir=place.work_dir, variables=variables)
        if self._spans is not None:
            start = msgspec.structs.replace(start, variables=self._spans.told(start.variables))
        if self._around.recovers:
            patience, owner = int(self._config.remuda.agent_patience_seconds), owner_note(row, self._around.system_id)
            start = msgspec.structs.replace(start, owner=owner, patience_seconds=patience)
        self.life.agent_may_have_it = True
        await self._linked().start(start)
        reach("manager.started")
        self._payload = self._row = None
        self.life.started()
        self.hindrance.over()
        self._log.info("the job runs", work_dir=place.work_dir)

    async def _prepare(self) -> PreparedPlace | None:
        """The job's folders, after the operator's hook; None: the server does not want the job any more."""
        environment, machine = self.environment, self.life.machine
        asked = msgspec.structs.replace(self._place, may_have_begun=self.life.agent_may_have_it)
        if standing_machine(environment) and not asked.before_job:
            return await environment.prepare(asked, machine)
        place = await self._while_heard(environment.prepare(asked, machine))
        if place is None or not self._place.before_job or self._is_ready:
            return place
        output = await self._while_heard(environment.before(self._place, machine))
        if output is None:
            return None
        self._is_ready = True
        self._log.info("before_job is done", output=output)
        return place

    async def _while_heard(self, work: Awaitable[T]) -> T | None:
        """What may take long, while the server hears that the job is alive; None when it wants the job no more."""
        clock, late_at = self._around.clock, self._late_at()

        async def be_heard() -> bool:
            if self.life.phase is not Phase.ACKNOWLEDGED or clock.monotonic() >= late_at:
                return False
            self._bell.clear()
            match self.life.meanwhile(clock.monotonic()):
                case Wait() as wait:
                    await self._bell.until(min(wait.until, late_at))
                case call:
                    await self._call(call)
            return True

        result = await beside(work, be_heard, self._bell)
        if result is None and self.life.phase is Phase.ACKNOWLEDGED:
            raise EnvironmentLostError(self._too_late)
        return result

    def _late_at(self) -> float:
        """When the job is to be running, by the process's clock."""
        seconds, clock = self._config.prepare_seconds, self._around.clock
        return clock.monotonic() + self.received_at + seconds - clock.now() if seconds else math.inf

    @property
    def _too_late(self) -> str:
        return f"there was no environment for it within prepare_timeout ({self._config.prepare_timeout})"

    async def _close(self, *, tells_agent: bool) -> None:
        if tells_agent and self._link is not None:
            self._link.unsubscribe(self.key)
            try:
                await self._link.close_job(self.key)
            except EnvironmentLostError as error:
                self._log.warning("the agent does not close the job", cause=str(error))
            reach("manager.closed")
        self._disconnect()
        await self._clean_up()
        self.life.closed()

    async def _clean_up(self) -> None:
        folder, outcome = self._around.keeps_in, self.life.outcome
        if folder is not None and outcome is not None and outcome.state == "failed":
            return
        if folder is not None:
            kept_workdirs.forget(folder, self.job_id)
        await put_away(self.environment, self._place, self.life.machine, self._log)

    def _fail(self, reason: FailureReason, cause: str) -> None:
        self._log.warning("the job cannot run", cause=cause)
        self.life.fail(reason, cause, self._around.clock.monotonic())

    # For those who look into it.

    @property
    def allows_shells(self) -> bool:
        """Whether somebody may look into it, and there is a way for it."""
        return self._config.remuda.allow_shell and self._is_remuda

    @property
    def held_seconds(self) -> float:
        """For how long its environment stays; 0: it runs, or is gone."""
        return self.life.held_seconds(self._around.clock.monotonic()) if self.life.phase is Phase.HELD else 0.0

    def is_on(self, url: str) -> bool:
        """Whether it came from this server."""
        return self._client.url == url

    def call_server(self) -> None:
        """Let it be heard of now: the server has something to say to it, for example that it is canceled."""
        self.life.call_soon()
        self._bell.ring()

    def release(self) -> None:
        """Do not hold it any longer, nor if it fails later."""
        self._is_unwanted = True
        self.life.release()
        self._bell.ring()

    def shell(self, wish: ShellWish) -> AbstractAsyncContextManager[AgentShell]:
        """A command beside its steps."""
        client = None if self._link is None else self._link.client
        if client is None:
            raise EnvironmentTemporaryError("there is no connection to the job's machine now; try again")
        return open_shell(client, self.key, wish)

    @property
    def position(self) -> tuple[int, int]:
        log, seq = self.life.position
        return log, seq if self._spans is None else min(seq, self._spans.next_seq)

    def hear(self, event: WatchedEvent) -> None:
        match event:
            case LogChunk():
                before = self.life.trace.waiting
                self.life.log(event.offset, event.data, is_first=event.is_first)
                if before and before < CHUNK_BYTES and self.life.trace.waiting < CHUNK_BYTES:
                    return  # it changes nothing about when to send
            case StepResultEvent():
                self.life.result(event.seq, event.json)
                if self._spans is not None:
                    self._spans.hear(event.seq, event.json)
                self._at_stage(step_name(event.json))
            case JobEnded():
                self.used = event.used
                self.life.ended(
                    outcome_of(event, now=self._around.clock.now(), is_held=not self._is_unwanted),
                    self._around.clock.monotonic(),
                )
            case UnknownJob():
                self._log.warning("the agent does not know the job", machine=self.life.machine)
                self.life.unknown(self._around.clock.monotonic())
        if self.life.is_overfull and self._link is not None:
            self._link.unsubscribe(self.key)
            self.life.unsubscribed()
        self._bell.ring()

    def _at_stage(self, stage: str) -> None:
        if stage and stage != self.stage:
            now = self._around.clock.now()
            self._around.staged(self._config, self.stage, now - self.stage_since)
            self.stage, self.stage_since = stage, now

    def agent_is_back(self) -> None:
        self.life.agent_is_back()
        self.hindrance.over()
        self._bell.ring()

    def agent_failed(self, cause: str) -> None:
        self.hindrance.is_new(cause)  # the link has said it, for all its jobs at once
        self.life.agent_failed(cause, self._around.clock.monotonic())
        self._bell.ring()

    def machine_lost(self, cause: str) -> None:
        self._log.error("the job's machine is lost", machine=self.life.machine, cause=cause)
        self.life.machine_lost(f"the machine {self.life.machine} is lost: {cause}", self._around.clock.monotonic())
        self._disconnect()
        self._bell.ring()
