"""Computes how long the environment of a failed job is kept for debugging (on hold). Pure code.

The default is the runner's `hold_failed`. A job may ask for another time with the variable REMUDA_HOLD_FAILED, up to
the runner's `hold_by_job` or `hold_failed`, whichever is longer."""

from collections.abc import Iterable

import msgspec

from remuda.lib.durations import format_duration, parse_duration
from remuda.manager.config.values import RemudaConfig
from remuda.wire.agent_client import JobVariable

VARIABLE = "REMUDA_HOLD_FAILED"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """How long the environment of a job is kept for debugging if the job fails, and texts about it for the log."""

    seconds: int = 0
    note: str = ""
    """Line for the job's log if it fails."""
    remarks: tuple[str, ...] = ()
    """Warnings for the job's log if its REMUDA_HOLD_FAILED is invalid or too long."""


def hold_of(config: RemudaConfig, variables: Iterable[JobVariable], job_id: int, *, may_shell: bool) -> Hold:
    """Return how long a job is kept for debugging if it fails: 0 if no shell can be opened in it (`may_shell`)."""
    asked = next((variable.value.strip() for variable in variables if variable.key == VARIABLE), "")
    if not may_shell:
        return Hold()
    seconds, remarks = config.hold_failed_seconds, []
    if asked:
        most = config.hold_by_job_seconds
        try:
            requested = parse_duration(asked)
        except ValueError as error:
            requested = seconds
            remarks.append(f"WARNING: {VARIABLE}: {error}")
        if requested > max(most, seconds):
            allowed = (
                f"allows jobs at most {format_duration(most)}" if most else "does not let jobs ask for a longer hold"
            )
            remarks.append(f"WARNING: {VARIABLE}={asked}: this runner {allowed} (hold_by_job)")
            requested = max(most, seconds)
        seconds = requested if most or requested < seconds else seconds
    if seconds < 1:
        return Hold(remarks=tuple(remarks))
    note = (
        f"The job has failed; its environment stays for {format_duration(int(seconds))}. "
        f"Look into it with `remuda job shell {job_id}`, release it with `remuda job release {job_id}`."
    )
    return Hold(seconds=int(seconds), note=note, remarks=tuple(remarks))
