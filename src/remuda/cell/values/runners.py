"""Stored values of runners and of the runner manager processes that use them."""

from remuda.cell.values.stored import ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import CELL_POOL, Fingerprint, Pool, RunnerType

MAX_POLL_HOLD_SECONDS = 3600
"""Longer than this gitlab-runner does not wait for the response to a job request."""
LEGACY = "<legacy>"
"""GitLab's system id of a manager that sends none."""


class Runner(Value, frozen=True, kw_only=True):
    """A registered runner. It has one token; any number of runner manager processes may use it to poll for jobs."""

    id: RunnerId
    type: RunnerType
    token_hash: str
    created_at: float
    description: str = ""
    maintenance_note: str | None = None
    paused: bool = False
    locked: bool = False
    protected_only: bool = False
    run_untagged: bool = True
    tags: tuple[str, ...] = ()
    maximum_timeout: int | None = None
    project_ids: tuple[ProjectId, ...] = ()
    """For a project runner: the projects that it serves."""
    priority: int = 0
    """Waiting runners with a higher priority get a job first."""
    registered: bool = False
    """Registered with a registration token."""
    organization_id: int = ORGANIZATION_ID
    """Organization of its group or projects, or of the administrator who created it."""
    organization_ids: tuple[int, ...] = ()
    """For an instance runner: the organizations whose jobs it takes; empty: all organizations of the cell."""
    group_id: int | None = None
    """For a group runner: the group that it serves, with its subgroups."""
    token_expires_at: float | None = None
    user_id: int = USER_ID
    """The user who created it."""
    poll_hold_seconds: int | None = None
    """How long its polls are held at most; None: as in the settings of the cell."""

    def pools(self) -> frozenset[Pool]:
        """Return the cell, organizations, group or projects whose jobs the runner takes, as pairs of kind and id."""
        match self.type:
            case RunnerType.INSTANCE:
                return frozenset(("organization", number) for number in self.organization_ids) or frozenset({CELL_POOL})
            case RunnerType.GROUP:
                return frozenset({("group", self.group_id or 0)})
            case RunnerType.PROJECT:
                return frozenset(("project", project_id) for project_id in self.project_ids)

    def may_serve(self, organization_id: int) -> bool:
        """True if the runner takes jobs of the organization, or of groups or projects in it."""
        if self.type is RunnerType.INSTANCE:
            return not self.organization_ids or organization_id in self.organization_ids
        return self.organization_id == organization_id

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(
            tags=frozenset(self.tags),
            run_untagged=self.run_untagged,
            protected_only=self.protected_only,
            pools=self.pools(),
        )


class RunnerManager(Value, frozen=True, kw_only=True):
    """A runner manager: a process that polls for jobs with the token of a runner."""

    runner_id: RunnerId
    system_id: str
    contacted_at: float
    name: str = ""
    runner_version: str = ""
    revision: str = ""
    platform: str = ""
    architecture: str = ""
    executor: str = ""
    features: tuple[str, ...] = ()
    ip_address: str = ""
    capacity: int | None = None
    """Number of jobs that it can run at a time, as it reports."""
    load_running: int | None = None
    """Number of jobs that it runs for all its servers, as it reports. Up to a minute old."""
    load_free: int | None = None
    """Number of further jobs that it can take, as it reports."""
    problem: str = ""
    """Why it takes no jobs, as it reports; empty: it does."""
