"""A runner, and the managers that serve it."""

from remuda.cell.values.stored import ORGANIZATION_ID, USER_ID, Value
from remuda.model.job import ProjectId, RunnerId
from remuda.model.runner import Fingerprint, Pool, RunnerType

MAX_POLL_HOLD_SECONDS = 3600
"""gitlab-runner waits no longer than that for the answer to a request for a job."""
LEGACY = "<legacy>"
"""GitLab's name for a manager that does not say its own."""


class Runner(Value, frozen=True, kw_only=True):
    """A runner: one token, any number of managers."""

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
    """For a project runner: the projects it serves."""
    priority: int = 0
    """Of the runners that wait for a job, those with a higher one get it first."""
    registered: bool = False
    """It came through a registration token."""
    organization_id: int = ORGANIZATION_ID
    """The only one whose jobs it ever gets."""
    group_id: int | None = None
    """For a group runner: the group it serves, with all groups in it."""
    token_expires_at: float | None = None
    user_id: int = USER_ID
    """Who made it."""
    poll_hold_seconds: int | None = None
    """For how long its requests for a job are held at most; None: as the cell's settings say."""

    def pools(self) -> frozenset[Pool]:
        """Whose jobs it serves."""
        match self.type:
            case RunnerType.INSTANCE:
                return frozenset({("organization", self.organization_id)})
            case RunnerType.GROUP:
                return frozenset({("group", self.group_id or 0)})
            case RunnerType.PROJECT:
                return frozenset(("project", project_id) for project_id in self.project_ids)

    def fingerprint(self) -> Fingerprint:
        """What it offers."""
        return Fingerprint(
            tags=frozenset(self.tags),
            run_untagged=self.run_untagged,
            protected_only=self.protected_only,
            pools=self.pools(),
        )


class RunnerManager(Value, frozen=True, kw_only=True):
    """A process that polls with a runner's token."""

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
    """How many jobs it says that it can run at a time."""
    load_running: int | None = None
    """How many it says that it has, of all its servers; as of a minute ago, because it changes with every job."""
    load_free: int | None = None
    """How many more it says that it has room for."""
