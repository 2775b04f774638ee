"""What a runner offers (its fingerprint), what a job needs (its capability key), and whether they match.

The runner must have all tags of the job, or the tag `*`, which stands for any tags. A job without tags needs a runner
that takes untagged jobs. A protected runner takes only jobs of protected refs. A runner serves the whole cell,
organizations, a group, or projects."""

from enum import StrEnum

from remuda.lib.dataclass import dataclass


class RunnerType(StrEnum):
    """Scope of a runner: whole instance, a group or projects. The values are GitLab's."""

    INSTANCE = "instance_type"
    GROUP = "group_type"
    PROJECT = "project_type"


Pool = tuple[str, int]
"""A set of jobs that a runner serves: ("cell", 0), ("organization", id), ("group", id) or ("project", id)."""

CELL_POOL: Pool = ("cell", 0)
"""All jobs of the cell."""


ANY_TAG = "*"
"""A runner with this tag takes jobs with any tags. GitLab has nothing like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityKey:
    """What a job needs of a runner. A runner that can take one job can take all jobs with an equal key."""

    tags: frozenset[str] = frozenset()
    protected: bool = False
    project_id: int = 0
    group_ids: tuple[int, ...] = ()
    """Groups of its project, the nearest first."""
    organization_id: int = 1
    closed_to: tuple[str, ...] = ()
    """Types of runners that its project does not use: instance runners, group runners."""

    def pools(self) -> tuple[Pool, ...]:
        """The pools (sets of jobs that a runner serves) of the job: cell, organization, groups; its project last."""
        pools: tuple[Pool, ...] = (("project", self.project_id),)
        if RunnerType.GROUP not in self.closed_to:
            pools = (*(("group", group_id) for group_id in self.group_ids), *pools)
        if RunnerType.INSTANCE not in self.closed_to:
            pools = (CELL_POOL, ("organization", self.organization_id), *pools)
        return pools


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a runner offers to jobs. Runners with equal fingerprints can take the same jobs."""

    tags: frozenset[str] = frozenset()
    run_untagged: bool = True
    protected_only: bool = False
    pools: frozenset[Pool] = frozenset({CELL_POOL})
    """The sets of jobs that it serves."""


def lacks(fingerprint: Fingerprint, tags: frozenset[str], *, is_protected: bool) -> str | None:
    """Why the runner cannot take a job with these tags, as text; None if it can. The job's project is not checked.
    `is_protected`: the job is of a protected ref."""
    missing = tags - fingerprint.tags
    if missing and ANY_TAG not in fingerprint.tags:
        return "the runner lacks the tags " + ", ".join(sorted(missing))
    if not tags and not fingerprint.run_untagged:
        return "the runner takes only jobs with tags"
    if fingerprint.protected_only and not is_protected:
        return "the runner takes only jobs of protected refs"
    return None


def misfit(fingerprint: Fingerprint, need: CapabilityKey) -> str | None:
    """Why the runner cannot take a job with these needs, as text; None if it can."""
    if fingerprint.pools.isdisjoint(need.pools()):
        return "the runner does not serve this project"
    return lacks(fingerprint, need.tags, is_protected=need.protected)


def fits(fingerprint: Fingerprint, need: CapabilityKey) -> bool:
    return misfit(fingerprint, need) is None
