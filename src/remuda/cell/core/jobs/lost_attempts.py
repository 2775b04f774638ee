"""Decides whether an attempt was lost by an infrastructure failure before the script of the job began. Such a job is
retried without counting the attempt. The runner has to report the failure, unless the cell could not build the payload:
a runner that is only silent may still run the script. If the evidence is unclear, the script counts as begun, because
running it twice by mistake is worse than a failure that a user retries."""

import re
from collections.abc import Mapping
from typing import Any

from remuda.cell.core.jobs.result_limits import CUT
from remuda.cell.values import Job
from remuda.model.job import FailureReason

MOST_LOSSES = 2
"""After this number of lost attempts of a job the next one counts as a failure."""

POSSIBLE = frozenset(
    {
        FailureReason.RUNNER_SYSTEM_FAILURE,
        FailureReason.RUNNER_INTERRUPTED,
        FailureReason.RUNNER_EXTERNAL_DEPENDENCY_FAILURE,
        FailureReason.SCHEDULER_FAILURE,
    }
)
"""Failure reasons that say nothing about the job itself."""

LOG_BYTES = 1024 * 1024
"""Length of the log that is searched; the part before the script is far shorter."""

_BEFORE = (b"resolve_secrets", b"prepare_executor", b"prepare_script", b"get_sources", b"restore_cache")
_SECTION = re.compile(rb"section_start:[0-9]{1,12}:([A-Za-z0-9_.-]{1,64})")
_SCRIPT = re.compile(rb"(step_.*|build_script|user_script|after_script)")


def is_lost(job: Job, reason: FailureReason | None, *, before_script: bool) -> bool:
    """Return whether a failed attempt was lost to an infrastructure failure, so that it is retried without being
    counted; at most `MOST_LOSSES` times per job. `before_script`: the script has certainly not begun."""
    return before_script and reason in POSSIBLE and job.lost_tries < MOST_LOSSES and not job.is_trigger


def has_begun_script(result: Any) -> bool:
    """Return whether this step result shows that a step from the job's script has started, or possibly has."""
    return isinstance(result, Mapping) and (
        (result.get("origin"), result.get("event")) == ("user", "started") or result.get("event") == CUT
    )


def has_begun_script_by_log(log: bytes, size: int) -> bool:
    """Return False if the log proves that the script has not begun: it is empty, or it has sections of the runner
    and none of the script, and `log` is all of it. `log` is the beginning of a log of `size` bytes."""
    if not size:
        return False
    sections = set(_SECTION.findall(log))
    if size > len(log) or sections.isdisjoint(_BEFORE):
        return True
    return any(_SCRIPT.fullmatch(name) for name in sections)
