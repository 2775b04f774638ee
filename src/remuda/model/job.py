"""The life of a job: its states, the events that move it, and one table that says which moves exist.

Everything that changes a job's state asks `after(state, event)`; there is no other place that knows a transition.
Who may cause an event (a token, an epoch) is decided by the cell; what follows for other jobs of the pipeline is in
`remuda.model.progress`.

The invariants that the tests check on every path through the table:
- a final state has no way out but two: a skipped job, which never ran, is revived when what it waited for is tried
  again, and a trigger job, which no runner ever gets, goes on when the pipeline that it stands for does;
- a job is handed out again only from LEASED, never after it has started;
- from every state that is not final there is a way to a final one.
"""

from enum import StrEnum
from typing import NewType

JobId = NewType("JobId", int)
PipelineId = NewType("PipelineId", int)
ProjectId = NewType("ProjectId", int)
RunnerId = NewType("RunnerId", int)


class JobState(StrEnum):
    """Where a job stands. The values are stored; those that GitLab has too carry its names."""

    CREATED = "created"  # waits for other jobs of its pipeline
    WAITING_FOR_RESOURCE = "waiting_for_resource"  # waits for its resource group
    PREPARING = "preparing"  # waits for something to be made ready for it
    SCHEDULED = "scheduled"  # waits for its start time
    MANUAL = "manual"  # waits for a person
    PENDING = "pending"  # waits for a runner
    LEASED = "leased"  # handed to a runner that has not spoken yet; of one without two-phase commit it may run
    RUNNING = "running"  # acknowledged: started, never handed out again
    CANCELING = "canceling"  # told to stop, may still run its after_script
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


class JobEvent(StrEnum):
    """What can happen to a job."""

    HOLD = "hold"  # its turn came, but a resource is taken
    PREPARE = "prepare"  # its turn came, something must be made ready first
    SCHEDULE = "schedule"  # its turn came, it starts later
    ASK = "ask"  # its turn came, a person must start it
    ENQUEUE = "enqueue"  # its turn came
    SKIP = "skip"  # its turn will never come
    LEASE = "lease"  # handed to a runner
    RELEASE = "release"  # the runner vanished before it spoke
    ACKNOWLEDGE = "acknowledge"  # the runner spoke
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"  # asked to stop; the runner can do so gracefully
    ABORT = "abort"  # stopped without asking the runner
    REVIVE = "revive"  # what it waited for is tried again
    REOPEN = "reopen"  # the pipeline that this trigger job started goes on


_S, _E = JobState, JobEvent

TRANSITIONS: dict[JobState, dict[JobEvent, JobState]] = {
    _S.CREATED: {
        _E.HOLD: _S.WAITING_FOR_RESOURCE,
        _E.PREPARE: _S.PREPARING,
        _E.SCHEDULE: _S.SCHEDULED,
        _E.ASK: _S.MANUAL,
        _E.ENQUEUE: _S.PENDING,
        _E.SKIP: _S.SKIPPED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.WAITING_FOR_RESOURCE: {
        _E.PREPARE: _S.PREPARING,
        _E.ENQUEUE: _S.PENDING,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.PREPARING: {
        _E.ENQUEUE: _S.PENDING,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.SCHEDULED: {
        _E.HOLD: _S.WAITING_FOR_RESOURCE,
        _E.PREPARE: _S.PREPARING,
        _E.ENQUEUE: _S.PENDING,
        _E.ASK: _S.MANUAL,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.MANUAL: {
        _E.HOLD: _S.WAITING_FOR_RESOURCE,
        _E.PREPARE: _S.PREPARING,
        _E.ENQUEUE: _S.PENDING,
        _E.SKIP: _S.SKIPPED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.PENDING: {
        _E.LEASE: _S.LEASED,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.LEASED: {
        _E.RELEASE: _S.PENDING,
        _E.ACKNOWLEDGE: _S.RUNNING,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELING,
        _E.ABORT: _S.CANCELED,
    },
    _S.RUNNING: {
        _E.ACKNOWLEDGE: _S.RUNNING,
        _E.SUCCEED: _S.SUCCESS,
        _E.FAIL: _S.FAILED,
        _E.CANCEL: _S.CANCELING,
        _E.ABORT: _S.CANCELED,
    },
    _S.CANCELING: {
        _E.ACKNOWLEDGE: _S.CANCELING,
        _E.CANCEL: _S.CANCELING,
        _E.SUCCEED: _S.CANCELED,
        _E.FAIL: _S.CANCELED,
        _E.ABORT: _S.CANCELED,
    },
    _S.SUCCESS: {_E.REOPEN: _S.RUNNING},
    _S.FAILED: {_E.REOPEN: _S.RUNNING},
    _S.CANCELED: {_E.REOPEN: _S.RUNNING},
    _S.SKIPPED: {_E.REVIVE: _S.CREATED},
}

FINAL = frozenset({JobState.SUCCESS, JobState.FAILED, JobState.CANCELED, JobState.SKIPPED})
"""States in which a job is over. Only a revival leads out of SKIPPED, and out of the others only a reopening."""

HELD = frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING})
"""States in which a runner has the job, or the cell itself a trigger job. Only here does a job token open anything."""

STARTED = frozenset({JobState.RUNNING, JobState.CANCELING})
"""States in which the job's script may be running."""

OCCUPYING = frozenset({JobState.PENDING, *HELD})
"""States in which a job has its resource group."""


class TransitionError(Exception):
    """An event that the state does not know."""

    def __init__(self, state: JobState, event: JobEvent) -> None:
        super().__init__(f"a job that is {state.value} cannot {event.value}")
        self.state = state
        self.event = event


def after(state: JobState, event: JobEvent) -> JobState:
    """The state that follows, or TransitionError."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise TransitionError(state, event) from None


class FailureReason(StrEnum):
    """Why a job failed: GitLab's names, those that Remuda can produce or accept."""

    UNKNOWN_FAILURE = "unknown_failure"
    SCRIPT_FAILURE = "script_failure"
    API_FAILURE = "api_failure"
    STUCK_OR_TIMEOUT_FAILURE = "stuck_or_timeout_failure"
    RUNNER_SYSTEM_FAILURE = "runner_system_failure"
    MISSING_DEPENDENCY_FAILURE = "missing_dependency_failure"
    RUNNER_UNSUPPORTED = "runner_unsupported"
    JOB_EXECUTION_TIMEOUT = "job_execution_timeout"
    SCHEDULER_FAILURE = "scheduler_failure"
    DATA_INTEGRITY_FAILURE = "data_integrity_failure"
    TRACE_SIZE_EXCEEDED = "trace_size_exceeded"
    NO_UPDATES_RUNNING = "no_updates_running"
    NO_UPDATES_CANCELING = "no_updates_canceling"
    STUCK_PENDING_WITH_MATCHING_RUNNERS = "stuck_pending_with_matching_runners"
    STUCK_PENDING_NO_MATCHING_RUNNERS = "stuck_pending_no_matching_runners"
    SERVER_TIMEOUT_RUNNING = "server_timeout_running"
    SERVER_TIMEOUT_CANCELING = "server_timeout_canceling"
    STALE_SCHEDULE = "stale_schedule"
    JOB_TOKEN_EXPIRED = "job_token_expired"
    PROJECT_DELETED = "project_deleted"
    USER_BLOCKED = "user_blocked"
    IMAGE_PULL_FAILURE = "image_pull_failure"
    RUNNER_CONFIGURATION_ERROR = "runner_configuration_error"
    RUNNER_EXTERNAL_DEPENDENCY_FAILURE = "runner_external_dependency_failure"
    RUNNER_INTERRUPTED = "runner_interrupted"
    JOB_CANCELED = "job_canceled"
    DOWNSTREAM_PROJECT_NOT_FOUND = "downstream_bridge_project_not_found"
    INVALID_TRIGGER = "invalid_bridge_trigger"
    DOWNSTREAM_CREATION_FAILED = "downstream_pipeline_creation_failed"
    DOWNSTREAM_TOO_DEEP = "reached_max_descendant_pipelines_depth"


class Fault(StrEnum):
    """Whose failure it is."""

    USER = "user"  # the job's own script or configuration
    RUNNER = "runner"  # the machine or the manager it ran under
    PLATFORM = "platform"  # the cell


_USER_REASONS = frozenset(
    {
        FailureReason.SCRIPT_FAILURE,
        FailureReason.JOB_EXECUTION_TIMEOUT,
        FailureReason.TRACE_SIZE_EXCEEDED,
        FailureReason.MISSING_DEPENDENCY_FAILURE,
        FailureReason.JOB_CANCELED,
        FailureReason.RUNNER_UNSUPPORTED,
        FailureReason.PROJECT_DELETED,
        FailureReason.USER_BLOCKED,
        FailureReason.DOWNSTREAM_PROJECT_NOT_FOUND,
        FailureReason.INVALID_TRIGGER,
        FailureReason.DOWNSTREAM_CREATION_FAILED,
        FailureReason.DOWNSTREAM_TOO_DEEP,
    }
)
_PLATFORM_REASONS = frozenset(
    {
        FailureReason.API_FAILURE,
        FailureReason.SCHEDULER_FAILURE,
        FailureReason.DATA_INTEGRITY_FAILURE,
        FailureReason.STALE_SCHEDULE,
    }
)


def fault_of(reason: FailureReason) -> Fault:
    """Whose failure a reason is."""
    if reason in _USER_REASONS:
        return Fault.USER
    return Fault.PLATFORM if reason in _PLATFORM_REASONS else Fault.RUNNER
