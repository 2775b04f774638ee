"""What a runner offers (its fingerprint), what a job needs (its capability key), and whether they fit.

Tags of the job must all be the runner's; a job without tags needs a runner that takes such jobs; a protected runner
takes only jobs of protected refs; a runner serves an organization, a project, or all of its cell.
"""

from enum import StrEnum

from remuda.lib.dataclass import dataclass


class RunnerType(StrEnum):
    """How far a runner reaches. The values are GitLab's."""

    INSTANCE = "instance_type"
    GROUP = "group_type"
    PROJECT = "project_type"


Pool = tuple[str, int]
"""A set of jobs that a runner may serve as a whole: of an organization, of a group, of a project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityKey:
    """What a job needs. Jobs with equal keys are interchangeable for matching."""

    tags: frozenset[str] = frozenset()
    protected: bool = False
    project_id: int = 0
    group_ids: tuple[int, ...] = ()
    """The groups its project is in, the nearest first."""
    organization_id: int = 1

    def pools(self) -> tuple[Pool, ...]:
        """Everything it belongs to."""
        groups = tuple(("group", group_id) for group_id in self.group_ids)
        return (("organization", self.organization_id), *groups, ("project", self.project_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a runner offers. Runners with equal ones can take exactly the same jobs."""

    tags: frozenset[str] = frozenset()
    run_untagged: bool = True
    protected_only: bool = False
    pools: frozenset[Pool] = frozenset({("organization", 1)})
    """Whose jobs it serves."""


def lacks(fingerprint: Fingerprint, tags: frozenset[str], *, is_protected: bool) -> str | None:
    """Why the runner cannot take such a job, whosever it is; None when it can."""
    missing = tags - fingerprint.tags
    if missing:
        return "the runner lacks the tags " + ", ".join(sorted(missing))
    if not tags and not fingerprint.run_untagged:
        return "the runner takes only jobs with tags"
    if fingerprint.protected_only and not is_protected:
        return "the runner takes only jobs of protected refs"
    return None


def misfit(fingerprint: Fingerprint, need: CapabilityKey) -> str | None:
    """Why the runner cannot take such a job, in words; None when it can."""
    if fingerprint.pools.isdisjoint(need.pools()):
        return "the runner does not serve this project"
    return lacks(fingerprint, need.tags, is_protected=need.protected)


def fits(fingerprint: Fingerprint, need: CapabilityKey) -> bool:
    """Whether the runner can take such a job."""
    return misfit(fingerprint, need) is None
