"""The states of a job, the events that change them, and the table of all transitions.

All code that changes the state of a job calls `after(state, event)`. The cell checks who may cause an event, by token
and epoch (how often the job was assigned). `remuda.model.progress` computes what follows for other jobs.

Invariants, which tests check on every path through the table:
- a final state has only two ways out: a skipped job, which never ran, is revived when a job that it waited for is
  retried; a trigger job, which gets no runner, is reopened when its downstream pipeline runs again;
- a job is assigned to another runner only from LEASED, never after it has started;
- from every state that is not final there is a way to a final one."""

from enum import StrEnum
from typing import NewType

JobId = NewType("JobId", int)
PipelineId = NewType("PipelineId", int)
ProjectId = NewType("ProjectId", int)
RunnerId = NewType("RunnerId", int)


class JobState(StrEnum):
    """The state of a job. The values are stored; they are GitLab's names, if GitLab has the state."""

    CREATED = "created"  # waits for other jobs of its pipeline
    WAITING_FOR_RESOURCE = "waiting_for_resource"  # waits for its resource group
    PREPARING = "preparing"  # waits for its preparation
    SCHEDULED = "scheduled"  # waits for its start time
    MANUAL = "manual"  # waits for a user to start it
    PENDING = "pending"  # waits for a runner
    LEASED = "leased"  # handed out, not acknowledged yet; without two-phase commit it may run
    RUNNING = "running"  # acknowledged: started, never handed out again
    CANCELING = "canceling"  # its runner was told to stop; after_script may still run
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"


class JobEvent(StrEnum):
    HOLD = "hold"  # it may start, but its resource group is occupied
    PREPARE = "prepare"  # it may start, but must be prepared first
    SCHEDULE = "schedule"  # it may start after a delay
    ASK = "ask"  # it may start when a user starts it
    ENQUEUE = "enqueue"  # it may start
    SKIP = "skip"  # it will not start
    LEASE = "lease"  # handed out to a runner
    RELEASE = "release"  # the runner vanished before it acknowledged
    ACKNOWLEDGE = "acknowledge"  # the runner started it
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"  # canceled; the runner can stop it gracefully
    ABORT = "abort"  # stopped without the runner
    REVIVE = "revive"  # a job that it waited for is retried
    REOPEN = "reopen"  # the downstream pipeline of this trigger job runs again


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
"""States of a job that has ended. Only REVIVE leads out of SKIPPED, only REOPEN out of the others."""

ASSIGNED = frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING})
"""States in which a runner, or for a trigger job the cell, has the job. Its token is valid only then, except for calls
that a runner may repeat after the end."""

STARTED = frozenset({JobState.RUNNING, JobState.CANCELING})
"""States of a job that its runner has started, or that is being canceled. A leased job may run, too, if its runner has
no two-phase commit."""

OCCUPYING = frozenset({JobState.PENDING, *ASSIGNED})
"""States in which a job occupies its resource group."""


class TransitionError(Exception):
    """The event is not allowed in the current state of the job."""

    def __init__(self, state: JobState, event: JobEvent) -> None:
        super().__init__(f"a job that is {state.value} cannot {event.value}")
        self.state = state
        self.event = event


def after(state: JobState, event: JobEvent) -> JobState:
    """The state of a job after an event. Raises TransitionError if the event is not allowed in `state`."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise TransitionError(state, event) from None


class FailureReason(StrEnum):
    """Why a job failed. The values are those of GitLab's failure reasons that Remuda produces or accepts."""

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
    ARCHIVED_FAILURE = "archived_failure"
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
    """The party that is responsible for a failure."""

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
        FailureReason.ARCHIVED_FAILURE,
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
    if reason in _USER_REASONS:
        return Fault.USER
    return Fault.PLATFORM if reason in _PLATFORM_REASONS else Fault.RUNNER
