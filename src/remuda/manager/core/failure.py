"""Why a job failed, in words the server accepts: a server lists the reasons it knows, older ones know few."""

from collections.abc import Collection

from remuda.model.job import FailureReason as Reason

ALWAYS_ACCEPTED = frozenset({Reason.SCRIPT_FAILURE, Reason.RUNNER_SYSTEM_FAILURE, Reason.JOB_EXECUTION_TIMEOUT})

_FALLBACKS = {
    Reason.IMAGE_PULL_FAILURE: Reason.RUNNER_SYSTEM_FAILURE,
    Reason.RUNNER_CONFIGURATION_ERROR: Reason.SCRIPT_FAILURE,
    Reason.RUNNER_EXTERNAL_DEPENDENCY_FAILURE: Reason.RUNNER_SYSTEM_FAILURE,
}


def accepted_reason(reason: str, listed: Collection[str]) -> str:
    """The reason to send, given those the server listed."""
    if reason in listed or reason in ALWAYS_ACCEPTED:
        return reason
    for specific, general in _FALLBACKS.items():
        if reason == specific:
            return general
    return Reason.UNKNOWN_FAILURE
