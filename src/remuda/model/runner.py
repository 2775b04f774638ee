"""What a runner offers (its fingerprint), what a job needs (its capability key), and whether they fit.

Tags of the job must all be the runner's; a job without tags needs a runner that takes such jobs; a protected runner
takes only jobs of protected refs; a runner serves an organization, a project, or all of its cell.
"""

from dataclasses import dataclass
from enum import StrEnum


class RunnerType(StrEnum):
    """How far a runner reaches. The values are GitLab's."""

    INSTANCE = "instance_type"
    GROUP = "group_type"
    PROJECT = "project_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityKey:
    """What a job needs. Jobs with equal keys are interchangeable for matching."""

    tags: frozenset[str] = frozenset()
    protected: bool = False
    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a runner offers."""

    tags: frozenset[str] = frozenset()
    run_untagged: bool = True
    protected_only: bool = False
    project_ids: frozenset[int] | None = None
    """Projects it serves; None means all of the cell."""


def misfit(fingerprint: Fingerprint, need: CapabilityKey) -> str | None:
    """Why the runner cannot take such a job, in words; None when it can."""
    if fingerprint.project_ids is not None and need.project_id not in fingerprint.project_ids:
        return "the runner does not serve this project"
    missing = need.tags - fingerprint.tags
    if missing:
        return "the runner lacks the tags " + ", ".join(sorted(missing))
    if not need.tags and not fingerprint.run_untagged:
        return "the runner takes only jobs with tags"
    if fingerprint.protected_only and not need.protected:
        return "the runner takes only jobs of protected refs"
    return None


def fits(fingerprint: Fingerprint, need: CapabilityKey) -> bool:
    """Whether the runner can take such a job."""
    return misfit(fingerprint, need) is None
