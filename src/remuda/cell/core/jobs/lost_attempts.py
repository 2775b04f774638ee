"""Decides whether an attempt of a job was lost: an infrastructure failure ended it before the script of the job began.
Such a job is retried, and the lost attempt does not count. The runner must have reported the failure, or the cell could
not build the payload: a runner that only stopped calling may still run the script. If it is not clear whether the
script began, the attempt is not lost: running a script twice by mistake is worse than a failure that a user retries."""

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
    """Return whether an infrastructure failure ended an attempt before its script began. Such an attempt is retried and
    not counted, at most `MOST_LOSSES` times per job. `before_script`: the script has certainly not begun."""
    return before_script and reason in POSSIBLE and job.lost_tries < MOST_LOSSES and not job.is_trigger


def has_begun_script(result: Any) -> bool:
    """Return whether the script has begun by this step result, or may have, because later results were not stored."""
    return isinstance(result, Mapping) and (
        (result.get("origin"), result.get("event")) == ("user", "started") or result.get("event") == CUT
    )


def has_begun_script_by_log(log: bytes, size: int) -> bool:
    """Return whether the script may have begun, by `log`, the beginning of a log of `size` bytes. False only if the log
    is empty, or `log` is all of it and has sections of the runner's preparation but none of the script."""
    if not size:
        return False
    sections = set(_SECTION.findall(log))
    if size > len(log) or sections.isdisjoint(_BEFORE):
        return True
    return any(_SCRIPT.fullmatch(name) for name in sections)
