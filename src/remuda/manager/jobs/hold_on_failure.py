"""How long the environment of a job stays that fails, and what its log says about that. Pure.

The runner decides (`hold_failed`); a job may ask with the variable REMUDA_HOLD_FAILED for more or less, up to what the
runner allows (`hold_by_job`). `jobs.py` asks when it starts a job; the agent holds it.
"""

from collections.abc import Iterable

import msgspec

from remuda.lib.durations import in_seconds, in_words
from remuda.manager.config.values import RemudaConfig
from remuda.wire.runner_api import Variable

VARIABLE = "REMUDA_HOLD_FAILED"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets."""

    seconds: int = 0
    note: str = ""
    """For the log of the job, if it fails."""
    remarks: tuple[str, ...] = ()
    """What it asked for and does not get."""


def hold_of(config: RemudaConfig, variables: Iterable[Variable], job_id: int, *, may_shell: bool) -> Hold:
    """`may_shell`: whether a shell can be opened in the job at all; without, nobody could look into it."""
    asked = next((one.value.strip() for one in variables if one.key == VARIABLE), "")
    if not may_shell:
        return Hold()
    seconds, remarks = config.hold_failed_seconds, []
    if asked:
        most = config.hold_by_job_seconds
        try:
            wanted = in_seconds(asked)
        except ValueError as error:
            wanted = seconds
            remarks.append(f"WARNING: {VARIABLE}: {error}")
        if wanted > max(most, seconds):
            allowed = f"at most {in_words(most)}" if most else "nothing of this"
            remarks.append(f"WARNING: {VARIABLE}={asked}: this runner allows jobs {allowed} (hold_by_job)")
            wanted = max(most, seconds)
        seconds = wanted if most or wanted < seconds else seconds
    if seconds < 1:
        return Hold(remarks=tuple(remarks))
    note = (
        f"The job has failed; its environment stays for {in_words(int(seconds))}. "
        f"Look into it with `remuda job shell {job_id}`, let it go with `remuda job release {job_id}`."
    )
    return Hold(seconds=int(seconds), note=note, remarks=tuple(remarks))
