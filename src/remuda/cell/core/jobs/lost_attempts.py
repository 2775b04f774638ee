"""Whether a job was lost through the platform before its script had begun: then it is tried again and nobody counts it.

Decided here: which reasons can be such a loss, how often a job may be lost, and what counts as evidence that the script
had not begun. A runner that says so itself is needed: one that is merely silent may still be running the script. Where
the evidence is unclear the script counts as begun, because running it twice by mistake is worse than a failure that a
person retries. Pure; `remuda.cell.dispatch.runner_calls` brings the evidence, `core.plan` asks for the rule.
"""

import re
from collections.abc import Mapping
from typing import Any

from remuda.cell.core.jobs.result_limits import CUT
from remuda.cell.values import Job
from remuda.model.job import FailureReason

MOST_LOSSES = 2
"""A job that is lost more often has failed."""

POSSIBLE = frozenset(
    {
        FailureReason.RUNNER_SYSTEM_FAILURE,
        FailureReason.RUNNER_INTERRUPTED,
        FailureReason.RUNNER_EXTERNAL_DEPENDENCY_FAILURE,
        FailureReason.SCHEDULER_FAILURE,
    }
)
"""Reasons that say nothing about the job itself."""

LOG_BYTES = 1024 * 1024
"""So much of a log is searched; what stands before the script is far shorter."""

_BEFORE = (b"resolve_secrets", b"prepare_executor", b"prepare_script", b"get_sources", b"restore_cache")
_SECTION = re.compile(rb"section_start:[0-9]{1,12}:([A-Za-z0-9_.-]{1,64})")
_SCRIPT = re.compile(rb"(step_.*|build_script|user_script|after_script)")


def is_lost(job: Job, reason: FailureReason | None, *, before_script: bool) -> bool:
    """Whether this failure is to be made up for by a further try that does not count."""
    return before_script and reason in POSSIBLE and job.lost_tries < MOST_LOSSES and not job.is_trigger


def has_begun_script(result: Any) -> bool:
    """Whether by this a manager that reports every step has begun one of the job's own, or may have."""
    return isinstance(result, Mapping) and (
        (result.get("origin"), result.get("event")) == ("user", "started") or result.get("event") == CUT
    )


def has_begun_script_by_log(log: bytes, size: int) -> bool:
    """Whether the script has begun, by the beginning of a log of `size` bytes.

    It has not when nothing was logged at all, or when the runner's own sections are there and none of the script's.
    """
    if not size:
        return False
    sections = set(_SECTION.findall(log))
    if size > len(log) or sections.isdisjoint(_BEFORE):
        return True
    return any(_SCRIPT.fullmatch(name) for name in sections)
