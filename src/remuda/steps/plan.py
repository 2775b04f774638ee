"""What a job does next, when a running step has to end, and what its end means. Pure: values in, decisions out.

`runner` asks `next_action` after every finished step and `reason_to_end` whenever it looks at a running one, and
does what they say; both can be asked again after a crash and answer the same. Steps run one after the other.

A stopped job is not over: steps with `always()` and `failure()` still run (that is how after_script and artifacts of
a failed job work), each under a limit of its own. Asking twice is asking once; Close ends everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from remuda.steps.definition import Condition, Definition, Step

AFTER_SECONDS = 300.0
"""How long a step that runs after a failure may take, where it has no timeout and the job's is used up."""

GRACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL."""

EXIT_PLATFORM = 75
"""A standard step exits with this (EX_TEMPFAIL) when the platform broke, not the user's input."""


class Cause(StrEnum):
    """Why the agent ended a step's processes."""

    CANCEL = "cancel"
    JOB_TIMEOUT = "job_timeout"
    STEP_TIMEOUT = "step_timeout"


class Status(StrEnum):
    """How a step ended; all but the last also how a job ends."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Fault(StrEnum):
    """Whose failure it is."""

    USER = "user"
    RUNNER = "runner"  # this machine or agent
    PLATFORM = "platform"  # what the agent's own steps depend on


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How one step ended."""

    status: Status
    exit_code: int | None = None
    error: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the job ended."""

    status: Status
    reason: str = ""
    """script_failure, runner_system_failure, job_execution_timeout, job_canceled; empty on success."""
    exit_code: int = 0
    """Of the step that decided; -1 when it has none."""
    message: str = ""
    """For a status; ends in `exit status N` where there is a number, and has these words nowhere else."""
    log_line: str = "Job succeeded"


@dataclass(frozen=True, slots=True)
class StartStep:
    index: int


@dataclass(frozen=True, slots=True)
class SkipStep:
    index: int


@dataclass(frozen=True, slots=True)
class End:
    outcome: Outcome


def next_action(
    definition: Definition, finished: Sequence[Finished], *, is_started: bool, cancelled: bool, timed_out: bool
) -> StartStep | SkipStep | End:
    """What follows on the steps that are finished. One that has started is carried to its end, whatever came since."""
    index = len(finished)
    if is_started:
        return StartStep(index)
    if index == len(definition.steps):
        return End(_outcome(definition, finished, cancelled=cancelled, timed_out=timed_out))
    good = not cancelled and not timed_out and _decisive(definition, finished) is None
    match definition.steps[index].condition:
        case Condition.ALWAYS:
            runs = True
        case Condition.SUCCESS:
            runs = good
        case Condition.FAILURE:
            runs = not good
    return StartStep(index) if runs else SkipStep(index)


def job_status(definition: Definition, finished: Sequence[Finished], *, cancelled: bool, timed_out: bool) -> str:
    """CI_JOB_STATUS for the step that comes next."""
    if definition.steps[len(finished)].condition is Condition.SUCCESS:
        return "running"
    if cancelled:
        return "canceled"
    return "failed" if timed_out or _decisive(definition, finished) is not None else "success"


def deadlines(step: Step, *, started_at: float, job_deadline: float | None) -> dict[Cause, float]:
    """When the step has used up its own time and the job's."""
    found: dict[Cause, float] = {}
    if step.timeout_seconds is not None:
        found[Cause.STEP_TIMEOUT] = started_at + step.timeout_seconds
    if job_deadline is not None:
        if step.condition is Condition.SUCCESS:
            found[Cause.JOB_TIMEOUT] = job_deadline
        elif step.timeout_seconds is None:
            found[Cause.JOB_TIMEOUT] = max(job_deadline, started_at + AFTER_SECONDS)
    return found


def reason_to_end(
    step: Step, *, now: float, started_at: float, job_deadline: float | None, cancelled: bool
) -> Cause | None:
    """Why the running step must end now, if it must. A cancel lets a step finish that runs after a failure anyway."""
    if cancelled and step.condition is Condition.SUCCESS:
        return Cause.CANCEL
    for cause, deadline in deadlines(step, started_at=started_at, job_deadline=job_deadline).items():
        if now >= deadline:
            return cause
    return None


def judge(step: Step, *, exit_code: int | None, cause: Cause | None) -> Finished:
    """What the end of a step's processes means. Only our own steps can say that the platform broke."""
    match cause:
        case Cause.CANCEL:
            return Finished(status=Status.CANCELLED, exit_code=exit_code, error="cancelled")
        case Cause.JOB_TIMEOUT:
            error = "the job took longer than its limit"
            return Finished(status=Status.FAILURE, exit_code=exit_code, error=error, fault=Fault.USER)
        case Cause.STEP_TIMEOUT:
            error = f"the step took longer than its limit of {step.timeout_seconds:g} s"
            return Finished(status=Status.FAILURE, exit_code=exit_code, error=error, fault=Fault.USER)
    if exit_code is None:
        error = "the step's process ended without an exit code: it was killed from outside, or the machine restarted"
        return Finished(status=Status.FAILURE, error=error, fault=Fault.RUNNER)
    if exit_code == 0:
        return Finished(status=Status.SUCCESS, exit_code=0)
    platform = exit_code == EXIT_PLATFORM and step.builtin != "script"
    return Finished(
        status=Status.FAILURE,
        exit_code=exit_code,
        error=f"exit status {exit_code}",
        fault=Fault.PLATFORM if platform else Fault.USER,
    )


def system_failure(error: str) -> Finished:
    """The agent could not do its own part of a step."""
    return Finished(status=Status.FAILURE, error=error, fault=Fault.RUNNER)


def broken(error: str) -> Outcome:
    """The agent cannot go on with the job at all."""
    return Outcome(
        status=Status.FAILURE,
        reason="runner_system_failure",
        exit_code=-1,
        message=error,
        log_line=f"ERROR: Job failed (system failure): {error}",
    )


def _decisive(definition: Definition, finished: Sequence[Finished]) -> int | None:
    """The step that made the job fail: the first that failed and may not."""
    for index, (step, result) in enumerate(zip(definition.steps, finished, strict=False)):
        if result.status is Status.FAILURE and not step.continue_on_error:
            return index
    return None


def _outcome(definition: Definition, finished: Sequence[Finished], *, cancelled: bool, timed_out: bool) -> Outcome:
    if cancelled:
        return Outcome(
            status=Status.CANCELLED,
            reason="job_canceled",
            exit_code=-1,
            message="the job was cancelled",
            log_line="ERROR: Job failed: cancelled",
        )
    if timed_out:
        error = "the job took longer than its limit"
        return Outcome(
            status=Status.FAILURE,
            reason="job_execution_timeout",
            exit_code=-1,
            message=error,
            log_line=f"ERROR: Job failed: {error}",
        )
    index = _decisive(definition, finished)
    if index is None:
        return Outcome(status=Status.SUCCESS)
    result, name = finished[index], definition.steps[index].name
    if result.fault is not Fault.USER:
        system = broken(f'step "{name}": {result.error}')
        return system if result.exit_code is None else replace(system, exit_code=result.exit_code)
    return Outcome(
        status=Status.FAILURE,
        reason="script_failure",
        exit_code=-1 if result.exit_code is None else result.exit_code,
        message=f'step "{name}": {result.error}',
        log_line=f"ERROR: Job failed: {result.error}",
    )
