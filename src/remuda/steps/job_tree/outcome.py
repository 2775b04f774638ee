"""The ways in which a step or a job can end, as values, which are stored and sent to clients."""

from enum import StrEnum

from remuda.lib.dataclass import dataclass


class Cause(StrEnum):
    """Why the agent ended a step's processes."""

    CANCEL = "cancel"
    JOB_TIMEOUT = "job_timeout"
    STEP_TIMEOUT = "step_timeout"
    LIMIT = "limit"


class Status(StrEnum):
    """How a step ended. The end of a job has one of these values too, but never SKIPPED."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Fault(StrEnum):
    """Who has to fix what caused a failure."""

    USER = "user"
    RUNNER = "runner"  # this machine or agent
    PLATFORM = "platform"  # what the agent's own steps depend on


class Kind(StrEnum):
    EXIT = "exit"  # the command failed by its exit code, or the job removed the exit code
    LOAD = "load"  # the step could not be found, read, evaluated or started; no command ran
    POLICY = "policy"  # a policy does not let the step run
    LIMIT = "limit"  # the step exceeded a resource limit
    OUTPUTS = "outputs"  # the step's outputs or exports are missing or invalid
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STEP = "step"  # one of the steps below it failed
    SYSTEM = "system"  # the agent or the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of a step, or of one attempt at it."""

    status: Status
    exit_code: int | None = None
    error: str | None = None
    fault: Fault | None = None
    kind: Kind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The final result of a job, in the form that clients get."""

    status: Status
    reason: str = ""
    """script_failure, runner_system_failure, job_execution_timeout, job_canceled; empty on success."""
    exit_code: int = 0
    """Exit code of the step that determined the outcome; -1 if it has none."""
    message: str = ""
    """Ends in `exit status N` if a command failed by its exit code N; clients parse that."""
    log_line: str = "Job succeeded"


def failure(error: str, kind: Kind, *, fault: Fault = Fault.USER, exit_code: int | None = None) -> Finished:
    """Return the result of a failed step. Clients look for the words `exit status` in errors to find an exit code, so
    they are changed to `exit-status` unless the error is of the kind EXIT or STEP."""
    if kind not in (Kind.EXIT, Kind.STEP):
        error = error.replace("exit status", "exit-status")
    return Finished(status=Status.FAILURE, exit_code=exit_code, error=error, fault=fault, kind=kind)


def cancel_result(exit_code: int | None = None) -> Finished:
    return Finished(status=Status.CANCELLED, exit_code=exit_code, error="cancelled", kind=Kind.CANCEL)


SKIPPED = Finished(status=Status.SKIPPED)
SUCCESS = Finished(status=Status.SUCCESS)


def system_failure(error: str) -> Outcome:
    """Return the outcome of a job that the agent cannot continue: runner_system_failure with the message `error`."""
    return Outcome(
        status=Status.FAILURE,
        reason="runner_system_failure",
        exit_code=-1,
        message=error,
        log_line=f"ERROR: Job failed (system failure): {error}",
    )
