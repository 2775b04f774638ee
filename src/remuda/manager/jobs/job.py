"""Runs one job: asks its state machine (`Life`) for the next action, performs it, and stores the new state.

The state (`Record`) is stored in the journal before the next action, except small progress of log and results, so a new
process continues a job where the old one stopped. After a crash an action may be performed twice, so all calls to
server and agent are repeatable. Kill points mark where tests kill the process."""

import math
import sqlite3
import zlib
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec

from remuda.lib.killpoints import reach
from remuda.manager.compile import kept_workdirs
from remuda.manager.compile.compile import is_traced, job_warnings
from remuda.manager.compile.containers import runner_of_job
from remuda.manager.compile.start_request import StartContext, start_request
from remuda.manager.compile.step_entries import CompileError
from remuda.manager.config.values import RunnerConfig
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
from remuda.manager.core.record import JobRow, Phase, Record, again_bytes
from remuda.manager.core.relay import CHUNK_BYTES
from remuda.manager.environments.port import Environment, PreparedPlace, fixed_machine
from remuda.manager.errors import ConnectingError, EnvironmentLostError, EnvironmentTemporaryError
from remuda.manager.jobs import wire_mapping
from remuda.manager.jobs.engine_choice import choose_engine
from remuda.manager.jobs.job_context import JobContext
from remuda.manager.jobs.link import AgentLink
from remuda.manager.jobs.placement import place_of, release_place, store_slot
from remuda.manager.jobs.recovery import owner_note
from remuda.manager.jobs.waiting import Bell, Hindrance, run_beside
from remuda.manager.jobs.wire_mapping import outcome_of, step_name
from remuda.manager.metrics.metrics import RunnerLabels, mode_of
from remuda.model.job import FailureReason
from remuda.telemetry.logs import logger
from remuda.wire.agent_client import JobEnded, JobUse, LogChunk, StepResultEvent, UnknownJob, WatchedEvent
from remuda.wire.agent_shell import AgentShell, ShellCommand, open_shell
from remuda.wire.runner_api import JobPayload
from remuda.wire.runner_client import RunnerClient, read_payload
from remuda.wire.runner_server import RunnerApiTemporaryError

T = TypeVar("T")
_JOURNAL_SECONDS = 1.0
"""Pause after a failed write to the journal."""


class ManagedJob:
    """A job of this manager, from its receipt until its journal entry is removed."""

    def __init__(
        self,
        row: JobRow,
        record: Record,
        *,
        runner: RunnerConfig,
        client: RunnerClient,
        environment: Environment,
        context: JobContext,
    ) -> None:
        payload = read_payload(row.payload)
        runner = runner_of_job(payload, runner)
        self.key = row.key
        self.job_id = row.job_id
        self.slot: int = row.slot
        self.runner = row.runner
        self.labels = RunnerLabels(runner=row.runner, runner_name=row.runner_name, system_id=context.system_id)
        self.mode = mode_of(payload)
        self.used = JobUse()
        """Resources that the job used; empty until the agent reports them at its end."""
        self.stage = "prepare_executor"
        self.stage_since = context.clock.now()
        self.received_at = row.received_at
        self.hindrance = Hindrance()
        self._token = payload.token
        self._is_traced = is_traced(payload, runner)
        self._warnings = job_warnings(payload, runner) if row.sends_results else ()
        self._config = runner
        self._client = client
        self.environment = environment
        self._context = context
        self._link: AgentLink | None = None  # while it has a machine
        self._is_ready = False  # its folders are prepared and the before_job hook has run
        self._is_remuda = row.sends_results
        self._is_released = False  # it does not go on hold if it fails
        self._row: JobRow | None = row  # None once the agent has the job, like the payload
        self._payload: JobPayload | None = payload  # dropped early: there may be thousands of jobs
        self._place = place_of(row, payload, runner, has_own_folder=context.kept_workdirs is not None)
        if record.machine:
            environment.adopt(self._place, record.machine)
        self._saved, self._saved_at = record, context.clock.monotonic()
        self._again_bytes = again_bytes(runner.remuda.log_waiting_limit_bytes)
        self._is_stuck = False  # the journal cannot be written
        self._spans = None if context.make_spans is None else context.make_spans(row, payload)
        self._bell = Bell(context.clock, f"job {row.key}")
        self._log = logger("manager").bind(job=row.job_id, runner=row.runner)
        now = context.clock.monotonic()
        self.life = Life(
            record,
            now=now,
            epoch=context.clock.now() - now,
            sends_results=row.sends_results,
            accepted_reasons=(payload.features.failure_reasons or ()) if payload.features else (),
            jitter=zlib.crc32(row.key.encode()) % 1000 / 1000,
            limits=context.limits,
        )
        if record.phase not in (Phase.RECEIVED, Phase.ACKNOWLEDGED):
            self._payload = self._row = None

    @property
    def state(self) -> str:
        """The job's state as gitlab-runner's metrics name it: pending, running or finished."""
        match self.life.phase:
            case Phase.RECEIVED | Phase.ACKNOWLEDGED:
                return "pending"
            case Phase.STARTED | Phase.FOUND:
                return "running"
            case Phase.ENDED | Phase.ON_HOLD | Phase.OVER:
                return "finished"

    async def run(self) -> None:
        self._connect()
        self._context.server_health.add_job(self.runner)
        try:
            if self.life.phase is Phase.ON_HOLD:
                self._context.on_hold_change(self)
            while True:
                if not await self._save():
                    continue
                self._bell.clear()
                action = self.life.next_action(self._context.clock.monotonic())
                if isinstance(action, Forget):
                    await self._context.journal.remove(self.key)
                    if self._spans is not None:
                        self._spans.end(self.life.outcome, self._context.clock.now())
                    return
                await self._perform(action)
        finally:
            self._context.server_health.remove_job(self.runner, self.key)
            self._context.on_hold_change(self)
            self._disconnect()

    def _connect(self) -> None:
        if self.life.machine and self._link is None:
            self._link = self._context.links.use(self.environment, self.life.machine)
            self._link.listen(self.key, self, is_found=self.life.phase is Phase.FOUND)

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.forget(self.key)
            self._context.links.let_go(self._link)
            self._link = None

    def _require_link(self) -> AgentLink:
        if self._link is None:
            raise EnvironmentLostError("the job has lost its machine")
        return self._link

    async def _save(self) -> bool:
        """Store the job's state in the journal if it changed enough, then let the agent delete log and results that the
        server has. Returns False if the journal cannot be written; the caller then tries again."""
        record, now = self.life.record, self._context.clock.monotonic()
        if not record.is_worth_storing(self._saved, seconds=now - self._saved_at, again_bytes=self._again_bytes):
            return True
        try:
            await self._context.journal.save(self.key, record)
        except sqlite3.Error as error:
            if not self._is_stuck:
                self._log.error("cannot write the journal; job pauses until it can be written", cause=str(error))
            self._is_stuck = True
            await self._context.clock.sleep(_JOURNAL_SECONDS)
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
                case Acquire() | Start() if self._start_deadline() <= self._context.clock.monotonic():
                    raise EnvironmentLostError(self._too_late)
                case Acquire():
                    await self._acquire()
                case Start():
                    await self._start()
                case Subscribe():
                    link = self._require_link()
                    self.life.on_subscribed()
                    link.subscribe(self.key)
                case CancelSteps():
                    self._log.info("server canceled the job; ending its running step")
                    await self._require_link().cancel(self.key)
                    self.life.on_cancel_sent()
                case Close():
                    await self._close(tells_agent=action.tells_agent)
                case Wait():
                    await self._bell.until(action.until)
        except EnvironmentTemporaryError as error:
            if self.hindrance.is_new(str(error)):
                log = self._log.info if isinstance(error, ConnectingError) else self._log.warning
                log("job waits for its machine or agent; trying again", cause=str(error))
            self.on_agent_failed(str(error))
        except EnvironmentLostError as error:
            self._fail(FailureReason.RUNNER_SYSTEM_FAILURE, str(error))
        except Exception as error:
            # Retried forever, a job that cannot start would block its slot and keep its user waiting.
            if not isinstance(action, Acquire | Start):
                raise
            self._log.error("cannot start job; it fails", exc_info=error)
            cause = f"the runner manager could not start the job: {type(error).__name__}; see the manager's log"
            self._fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause)

    async def _call(self, call: Call) -> None:
        before = self.life.phase
        try:
            reply = await wire_mapping.call_server(
                self._client, self.job_id, self._token, call, is_traced=self._is_traced, warnings=self._warnings
            )
        except RunnerApiTemporaryError as error:
            self._context.server_health.note_failure(self.runner, self.key, str(error))
            self.life.on_no_answer(self._context.clock.monotonic(), str(error))
        else:
            self._context.server_health.note_answer(self.runner, self.key)
            match call, reply.status:
                case Acknowledge(), 200:
                    reach("manager.acknowledged")
                case SendTrace(), 200 | 201 | 202 | 204:
                    # With lines that the manager added itself.
                    self._context.on_log(self.job_id, call.start, call.data)
                    reach("manager.trace_sent")
                case SendResults(), 200 | 201 | 202 | 204:
                    reach("manager.result_sent")
                case SendFinal(), 200:
                    reach("manager.finished")
            self.life.on_reply(call, reply, self._context.clock.monotonic())
        if self.life.phase is Phase.ON_HOLD and before is not Phase.ON_HOLD:
            self._log.info("failed job is kept on hold for debugging", seconds=round(self.hold_seconds))
            reach("manager.held")
            self._context.on_hold_change(self)
        if self.life.phase is Phase.OVER and before is not Phase.OVER and self.life.problem:
            self._log.warning(
                "server ended the job or does not answer; stopping the job without reporting a final state",
                cause=self.life.problem,
            )

    async def _acquire(self) -> None:
        machine = await self._with_keep_alive(self.environment.acquire(self._place))
        if machine is not None:
            reach("manager.acquired")
            self.life.on_placed(machine)
            self._connect()
            self._log.info("machine assigned to job", machine=machine)

    async def _start(self) -> None:
        payload, row = self._payload, self._row
        assert payload is not None, "a job starts once"
        assert row is not None
        self._require_link().require_connection()
        self._row = row = await store_slot(row, self._context.settle(self), self.life.record, self._context.journal)
        if row.slot != self.slot:
            has_own_folder = self._context.kept_workdirs is not None
            self.slot, self._place = row.slot, place_of(row, payload, self._config, has_own_folder=has_own_folder)
        if (place := await self._prepare()) is None:
            return
        self._context.on_job_start(self.job_id, payload)
        try:
            runner, note = await choose_engine(self._config)
            start_context = StartContext(
                runner=runner,
                place=self._place,
                prepared=msgspec.structs.replace(place, notes=(*place.notes, note)) if note else place,
                system_id=self._context.system_id,
                now=self._context.clock.now(),
                may_shell=self.allows_shells,
                may_hold=not self._is_released,
            )
            start = start_request(payload, start_context)
        except CompileError as error:
            self._fail(FailureReason.RUNNER_CONFIGURATION_ERROR, str(error))
            return
        if self._context.kept_workdirs is not None:
            kept_workdirs.write(
                self._context.kept_workdirs, self.job_id, work_dir=place.work_dir, variables=start.variables
            )
        if self._spans is not None:
            start = msgspec.structs.replace(start, variables=self._spans.with_traceparent(start.variables))
        if self._context.recovers:
            patience, owner = int(self._config.remuda.agent_patience_seconds), owner_note(row, self._context.system_id)
            start = msgspec.structs.replace(start, owner=owner, patience_seconds=patience)
        self.life.agent_may_have_it = True
        await self._require_link().start(start)
        reach("manager.started")
        self._payload = self._row = None
        self.life.on_started()
        self.hindrance.clear()
        self._log.info("job started", work_dir=place.work_dir)

    async def _prepare(self) -> PreparedPlace | None:
        """Create the job's folders and run the `before_job` hook. Returns None if the server ended the job before."""
        environment, machine = self.environment, self.life.machine
        place_request = msgspec.structs.replace(self._place, may_have_begun=self.life.agent_may_have_it)
        if fixed_machine(environment) and not place_request.before_job:
            return await environment.prepare(place_request, machine)
        place = await self._with_keep_alive(environment.prepare(place_request, machine))
        if place is None or not self._place.before_job or self._is_ready:
            return place
        output = await self._with_keep_alive(environment.run_hook("before_job", self._place, machine))
        if output is None:
            return None
        self._is_ready = True
        self._log.info("before_job hook finished", output=output)
        return place

    async def _with_keep_alive(self, work: Awaitable[T]) -> T | None:
        """Await `work`, and meanwhile tell the server that the job is alive. Returns None if the server ended the job
        meanwhile. Raises EnvironmentLostError when `prepare_timeout` is over."""
        clock, deadline = self._context.clock, self._start_deadline()

        async def keep_alive() -> bool:
            if self.life.phase is not Phase.ACKNOWLEDGED or clock.monotonic() >= deadline:
                return False
            self._bell.clear()
            match self.life.keep_alive_action(clock.monotonic()):
                case Wait() as wait:
                    await self._bell.until(min(wait.until, deadline))
                case call:
                    await self._call(call)
            return True

        result = await run_beside(work, keep_alive, self._bell)
        if result is None and self.life.phase is Phase.ACKNOWLEDGED:
            raise EnvironmentLostError(self._too_late)
        return result

    def _start_deadline(self) -> float:
        """Return when `prepare_timeout` ends, on the monotonic clock; infinity if the runner has none."""
        seconds, clock = self._config.prepare_seconds, self._context.clock
        return clock.monotonic() + self.received_at + seconds - clock.now() if seconds else math.inf

    @property
    def _too_late(self) -> str:
        return f"no environment was ready within prepare_timeout ({self._config.prepare_timeout})"

    async def _close(self, *, tells_agent: bool) -> None:
        if tells_agent and self._link is not None:
            self._link.unsubscribe(self.key)
            try:
                await self._link.close_job(self.key)
            except EnvironmentLostError as error:
                self._log.warning("agent did not delete the job; cleaning up its folders", cause=str(error))
            reach("manager.closed")
        self._disconnect()
        await self._clean_up()
        self.life.on_closed()

    async def _clean_up(self) -> None:
        folder, outcome = self._context.kept_workdirs, self.life.outcome
        if folder is not None and outcome is not None and outcome.state == "failed":
            return
        if folder is not None:
            kept_workdirs.remove(folder, self.job_id)
        await release_place(self.environment, self._place, self.life.machine, self._log)

    def _fail(self, reason: FailureReason, cause: str) -> None:
        self._log.warning("job cannot run; it fails", cause=cause)
        self.life.fail(reason, cause, self._context.clock.monotonic())

    # For shells and holds (`shell.py`).

    @property
    def allows_shells(self) -> bool:
        """True if users can open shells in the job: the runner allows it, and its server is a Remuda cell."""
        return self._config.remuda.allow_shell and self._is_remuda

    @property
    def hold_seconds(self) -> float:
        """Seconds for which the failed job is still kept for debugging (on hold); 0 if it is not."""
        return self.life.hold_seconds(self._context.clock.monotonic()) if self.life.phase is Phase.ON_HOLD else 0.0

    def is_on(self, url: str) -> bool:
        return self._client.url == url

    def call_server(self) -> None:
        """Make the job call its server now, because the answer tells whether the job was canceled."""
        self.life.call_soon()
        self._bell.ring()

    def release(self) -> None:
        """Do not keep the job for debugging: clean it up if it has failed, or do not keep it when it fails."""
        self._is_released = True
        self.life.release_hold()
        self._bell.ring()

    def shell(self, command: ShellCommand) -> AbstractAsyncContextManager[AgentShell]:
        """Open a shell in the job. Raises EnvironmentTemporaryError if the job's machine is not connected."""
        client = None if self._link is None else self._link.client
        if client is None:
            raise EnvironmentTemporaryError("there is no connection to the job's machine now; try again")
        return open_shell(client, self.key, command)

    @property
    def position(self) -> tuple[int, int]:
        log, seq = self.life.position
        return log, seq if self._spans is None else min(seq, self._spans.next_seq)

    def on_event(self, event: WatchedEvent) -> None:
        match event:
            case LogChunk():
                before = self.life.trace.bytes_waiting
                self.life.on_log(event.offset, event.data, is_first=event.is_first)
                self._context.on_log(self.job_id, event.offset, event.data)
                if before and before < CHUNK_BYTES and self.life.trace.bytes_waiting < CHUNK_BYTES:
                    return  # the next send time stays the same
            case StepResultEvent():
                self.life.on_result(event.seq, event.json)
                if self._spans is not None:
                    self._spans.on_result(event.seq, event.json)
                self._enter_stage(step_name(event.json))
            case JobEnded():
                self.used = event.used
                self.life.on_ended(
                    outcome_of(event, now=self._context.clock.now(), may_hold=not self._is_released),
                    self._context.clock.monotonic(),
                )
            case UnknownJob():
                self._log.warning(
                    "agent does not have the job any more; the job fails unless it had ended", machine=self.life.machine
                )
                self.life.on_unknown_job(self._context.clock.monotonic())
        if self.life.is_overfull and self._link is not None:
            self._link.unsubscribe(self.key)
            self.life.on_unsubscribed()
        self._bell.ring()

    def _enter_stage(self, stage: str) -> None:
        if stage and stage != self.stage:
            now = self._context.clock.now()
            self._context.on_stage_end(self._config, self.stage, now - self.stage_since)
            self.stage, self.stage_since = stage, now

    def on_agent_back(self) -> None:
        self.life.on_agent_back()
        self.hindrance.clear()
        self._bell.ring()

    def on_agent_failed(self, cause: str) -> None:
        self.hindrance.is_new(cause)  # the link logs it once for all its jobs
        self.life.on_agent_failed(cause, self._context.clock.monotonic())
        self._bell.ring()

    def on_machine_lost(self, cause: str) -> None:
        self._log.error("job lost its machine; it fails unless it had ended", machine=self.life.machine, cause=cause)
        self.life.on_machine_lost(f"the machine {self.life.machine} is lost: {cause}", self._context.clock.monotonic())
        self._disconnect()
        self._bell.ring()
