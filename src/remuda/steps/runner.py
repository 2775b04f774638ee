"""One job from its stored request to its stored end.

The loop is the same for a new job and for one found after a crash: read what the journal says, ask `plan` what
follows, do it, store it. Everything it does may be done again, so it may die on any line; `journal`, `logfile` and
`shim` make the repetition harmless. It decides nothing about order, conditions or limits.

Whoever wants to know about progress adds a listener; a call means only "look again".
"""

import logging
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.lib.clock import stamp
from remuda.lib.masking import Secrets
from remuda.steps import leftovers, plan, shim
from remuda.steps.definition import Condition, Definition, Step, parse_definition
from remuda.steps.environment import Environment, fit, write_files
from remuda.steps.errors import DefinitionError
from remuda.steps.execution import Execution, Surroundings, kill_unattended
from remuda.steps.journal import JobEnd, Journal
from remuda.steps.logfile import LogFile
from remuda.steps.outputs import read_outputs
from remuda.steps.plan import End, Finished, Outcome, SkipStep, StartStep, Status
from remuda.steps.process import Usage
from remuda.wire.proto.agent_pb2 import StartRequest

_CLEAR = "\r\033[0K"
_SIGNALS = frozenset(int(number) for number in signal.valid_signals())
_FIRST_STAGE, _LAST_STAGE = 1, 2**32 - 1

logger = logging.getLogger(__name__)


class Job:
    """A job the agent keeps, running or ended."""

    def __init__(self, journal: Journal, around: Surroundings) -> None:
        self.journal = journal
        self.listeners: set[Callable[[], None]] = set()
        self.closed = False
        self.confirmed = (0, 0)
        """What a client says is safe elsewhere: log offset, result number. Nothing is removed for it."""
        self._around = around
        self._execution: Execution | None = None
        request = journal.read_request()
        self.id = request.id
        self._request = request if journal.end is None else StartRequest()
        self._secrets = secrets_of(self._request)
        self.log = LogFile(
            journal.folder, secrets=self._secrets, limit_bytes=request.log_limit_bytes, clock=around.clock
        )

    @property
    def end(self) -> JobEnd | None:
        return self.journal.end

    def cancel(self) -> None:
        """The running step ends, what always runs still does. Asking again changes nothing."""
        if self.end is None and not self.journal.cancelled:
            self.journal.record_cancel()
            if self._execution is not None:
                self._execution.look_again()

    def destroy(self) -> None:
        """Kill what runs and remove every trace. Whoever calls this has cancelled the job's task."""
        if self._execution is not None:
            self._execution.kill()
        else:
            kill_unattended(self.journal.step_files(len(self.journal.finished)), self._around)
        leftovers.kill(self.journal.leftovers)
        self.journal.remove()
        self.closed = True
        self._tell()

    async def run(self) -> None:
        """Carry the job to its end. Whatever goes wrong here ends the job, never the agent."""
        try:
            await self._run()
        except DefinitionError as error:
            self._break(f"this agent cannot read the job's steps: {error}")
        except OSError as error:
            logger.warning("job %s: %s", self.id, error)
            self._break(f"the agent cannot use its data folder: {error.strerror}")
        except Exception as error:
            logger.exception("job %s", self.id)
            self._break(f"the agent failed: {type(error).__name__}")

    async def _run(self) -> None:
        definition = parse_definition(self._request.steps)
        if self._request.banner:
            self.log.say(_FIRST_STAGE, *self._request.banner)
        while True:
            self._tell()
            match plan.next_action(
                definition,
                self.journal.finished,
                is_started=self.journal.started is not None,
                cancelled=self.journal.cancelled,
                timed_out=self.journal.timed_out,
            ):
                case StartStep(index) if self._is_too_late(definition.steps[index]):
                    self.journal.record_cause(index, plan.Cause.JOB_TIMEOUT)
                case StartStep(index):
                    await self._run_step(definition, index)
                case SkipStep(index):
                    self._add_finished(definition.steps[index], Finished(status=Status.SKIPPED))
                case End(outcome):
                    await leftovers.end(self.journal.leftovers, self._around.clock)
                    self._finish(outcome)
                    return

    async def _run_step(self, definition: Definition, index: int) -> None:
        step = definition.steps[index]
        if self.journal.started is None:
            event = _event(step, "started", self._around.clock.now())
            self.journal.add_result(event | {"log_start": self.log.mark.length})
        started_at = self._started_at()
        env = self._environment(definition, step)
        self.log.say(_opened(index), *_opening_lines(step, started_at, env))
        self._tell()
        result: Finished | None = None
        usage: Usage | None = None
        if self.log.mark.stage < _closed(index):
            self._execution = Execution(
                step=step,
                index=index,
                started_at=started_at,
                job_deadline=self._deadline,
                journal=self.journal,
                log=self.log,
                around=self._around,
                tell=self._tell,
            )
            try:
                await self._execution.run(Path(self._request.work_dir), env)
            except OSError as error:
                self._execution.kill()
                result = plan.system_failure(f"the agent cannot run the step: {error.strerror}")
            usage = self._execution.usage
            self._execution = None
        self._close_step(definition, index, result, usage)

    def _close_step(self, definition: Definition, index: int, result: Finished | None, usage: Usage | None) -> None:
        step, files = definition.steps[index], self.journal.step_files(index)
        if result is None:
            result = plan.judge(step, exit_code=shim.exit_code(files), cause=self.journal.causes.get(index))
        # File times are coarser than the clock, so that a short step could seem to end before it began.
        ended_at = max(shim.exited_at(files) or self._around.clock.now(), self._started_at())
        warning = f'WARNING: step "{step.name}" failed: {result.error}'
        is_tolerated = result.status is Status.FAILURE and step.continue_on_error
        self.log.finish_step(
            _closed(index),
            *([warning] if is_tolerated else []),
            f"section_end:{int(ended_at)}:{step.name}{_CLEAR}",
        )
        # Stored before the result: with that the step's files, by which its processes are found, are forgotten.
        if leftover := leftovers.find(files):
            self.journal.record_leftover(leftover)
        more: dict[str, Any] = {"usage": asdict(usage)} if usage else {}
        if step.builtin != "script" and result.status is Status.SUCCESS:
            more |= {"outputs": read_outputs(files.outputs, self._secrets.mask)}
        self._add_finished(step, result, ended_at=ended_at, more=more)
        self.journal.forget_step(index)

    def _add_finished(
        self, step: Step, result: Finished, *, ended_at: float | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        now = self._around.clock.now()
        started = self.journal.started
        event = _event(step, "finished", now) | {
            "status": str(result.status),
            "exit_code": result.exit_code,
            "signal": _signal_in(result.exit_code),
            "error": None if result.error is None else self._secrets.mask(result.error),
            "fault": None if result.fault is None else str(result.fault),
            "started_at": started["time"] if started else None,
            "finished_at": stamp(ended_at or now),
            "log_start": started["log_start"] if started else self.log.mark.length,
            "log_end": self.log.mark.length,
        }
        self.journal.add_result(event | dict(more or {}))

    def _started_at(self) -> float:
        """When the step that runs now began."""
        assert self.journal.started is not None
        return datetime.fromisoformat(self.journal.started["time"]).timestamp()

    def _environment(self, definition: Definition, step: Step) -> Environment:
        status = plan.job_status(
            definition, self.journal.finished, cancelled=self.journal.cancelled, timed_out=self.journal.timed_out
        )
        return fit(
            dict(self._around.base_env)
            | dict(self._request.env)
            | write_files(self.journal.folder / "files", self._request.variables)
            | {"CI_JOB_STATUS": status}
            | dict(step.env)
        )

    @property
    def _deadline(self) -> float | None:
        limit = self._request.timeout_seconds
        return self.journal.accepted_at + limit if limit else None

    def _is_too_late(self, step: Step) -> bool:
        """Whether the job's time was used up between two steps."""
        if self._deadline is None or self.journal.started is not None:
            return False
        return step.condition is Condition.SUCCESS and self._around.clock.now() >= self._deadline

    def _finish(self, outcome: Outcome) -> None:
        outcome = replace(outcome, message=self._secrets.mask(outcome.message))
        self.log.say(_LAST_STAGE, outcome.log_line)
        shutil.rmtree(self.journal.folder / "files", ignore_errors=True)
        self.journal.record_end(self._end_with(outcome))
        self._request = StartRequest()
        self._tell()

    def _break(self, error: str) -> None:
        """End the job although its files may not be writable: then the end is at least known while the agent lives."""
        outcome = plan.broken(self._secrets.mask(error))
        if self._execution is not None:
            self._execution.kill()
        leftovers.kill(self.journal.leftovers)
        try:
            self._finish(outcome)
        except OSError:
            self.journal.end = self._end_with(outcome)
            self._tell()

    def _end_with(self, outcome: Outcome) -> JobEnd:
        return JobEnd(
            outcome=outcome,
            ended_at=self._around.clock.now(),
            log_bytes=self.log.mark.length,
            log_checksum=f"crc32:{self.log.mark.checksum:08x}",
            results=len(self.journal.results),
        )

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def secrets_of(request: StartRequest) -> Secrets:
    """Everything of a request that must not be seen."""
    masked = (variable.value for variable in request.variables if variable.masked)
    return Secrets((*request.masks, *masked), request.mask_prefixes)


def _opened(index: int) -> int:
    return _FIRST_STAGE + 1 + 2 * index


def _closed(index: int) -> int:
    return _opened(index) + 1


def _opening_lines(step: Step, started_at: float, env: Environment) -> list[str]:
    lines = [f"section_start:{int(started_at)}:{step.name}{_CLEAR}"]
    if env.too_large and step.builtin == "script":
        names = ", ".join(sorted(env.too_large))
        lines.append(f"WARNING: too large for the environment of programs, known to the script's shell only: {names}")
    return lines


def _event(step: Step, event: str, now: float) -> dict[str, Any]:
    return {
        "event": event,
        "path": f"/{step.name}",
        "name": step.name,
        "reference": step.reference,
        "origin": step.origin,
        "time": stamp(now),
    }


def _signal_in(exit_code: int | None) -> int | None:
    """Shells report a death by signal N as 128 + N."""
    if exit_code is None or exit_code - 128 not in _SIGNALS:
        return None
    return exit_code - 128
