"""Stored values of deployments: the environments that jobs deploy to, the deployments, and resource groups; and the
filters of their lists. Times are seconds since the epoch."""

from collections.abc import Collection

import msgspec

from remuda.cell.values.jobs import Job
from remuda.cell.values.stored import USER_ID, Value
from remuda.model.job import JobId, JobState, ProjectId

AVAILABLE, STOPPING, STOPPED = "available", "stopping", "stopped"
ENVIRONMENT_STATES = (AVAILABLE, STOPPING, STOPPED)
UNORDERED, OLDEST_FIRST, NEWEST_FIRST, NEWEST_READY_FIRST = (
    "unordered",
    "oldest_first",
    "newest_first",
    "newest_ready_first",
)
PROCESS_MODES = (UNORDERED, OLDEST_FIRST, NEWEST_FIRST, NEWEST_READY_FIRST)
"""Which of the jobs of a resource group goes first, as in GitLab."""
UPCOMING = frozenset({JobState.CREATED, JobState.SCHEDULED, JobState.WAITING_FOR_RESOURCE})
"""States of the jobs that will use a resource group later."""

STATES_BY_STATUS: dict[str, frozenset[JobState]] = {
    "created": frozenset(
        {
            JobState.CREATED,
            JobState.PENDING,
            JobState.MANUAL,
            JobState.SCHEDULED,
            JobState.WAITING_FOR_RESOURCE,
        }
    ),
    "running": frozenset({JobState.LEASED, JobState.RUNNING, JobState.CANCELING}),
    "success": frozenset({JobState.SUCCESS}),
    "failed": frozenset({JobState.FAILED}),
    "canceled": frozenset({JobState.CANCELED}),
    "skipped": frozenset({JobState.SKIPPED}),
    "blocked": frozenset(),
}
"""The statuses of a deployment, each with the states of its job. A cell has no approvals, so none is `blocked`."""
_STATUS_BY_STATE = {state: status for status, states in STATES_BY_STATUS.items() for state in states}


class Environment(Value, frozen=True, kw_only=True):
    """A place that jobs of a project deploy to, such as `production`. The name is unique in the project."""

    id: int
    project_id: ProjectId
    name: str
    slug: str
    state: str = AVAILABLE
    """available, stopping (its stop job runs) or stopped."""
    tier: str = "other"
    external_url: str = ""
    description: str = ""
    created_at: float
    updated_at: float
    auto_stop_at: float | None = None
    """When the cell stops it; None: never."""
    auto_stop_setting: str = "always"
    """always: stop it when it is due; with_action: only if it has a stop job."""


class Deployment(Value, frozen=True, kw_only=True):
    """One deployment to an environment. The status of one that a job makes is that of the job; one that a client of the
    API made has its own status and times."""

    id: int
    iid: int
    """Number in the project, from 1."""
    project_id: ProjectId
    environment_id: int
    job_id: JobId | None = None
    ref: str
    tag: bool
    sha: str
    created_at: float
    user_id: int = USER_ID
    status: str | None = None
    updated_at: float | None = None
    finished_at: float | None = None

    def find_status(self, job: Job | None) -> str:
        """Return the status. `job` is the job of the deployment; None if it has none."""
        return self.status or (_STATUS_BY_STATE[job.state] if job else "created")

    def find_update_time(self, job: Job | None) -> float:
        return self.updated_at or (job.updated_at if job else self.created_at)

    def find_finish_time(self, job: Job | None) -> float | None:
        return self.finished_at or (job.finished_at if job else None)


class ResourceGroup(Value, frozen=True, kw_only=True):
    """A resource group of a project: of its jobs only one runs at a time, in the order of the process mode."""

    id: int
    project_id: ProjectId
    key: str
    process_mode: str = UNORDERED
    created_at: float
    updated_at: float


class EnvironmentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects environments of a project. An empty or None field restricts nothing."""

    project_id: ProjectId
    name: str = ""
    search: str = ""
    """Part of the name, without regard to case."""
    states: tuple[str, ...] = ()

    def fits(self, environment: Environment) -> bool:
        return (
            environment.project_id == self.project_id
            and self.name in ("", environment.name)
            and self.search.casefold() in environment.name.casefold()
            and (not self.states or environment.state in self.states)
        )


class DeploymentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects and orders deployments of a project. A None field restricts nothing."""

    project_id: ProjectId
    environment_id: int | None = None
    """Must be an environment of the project."""
    statuses: Collection[str] | None = None
    updated_after: float | None = None
    updated_before: float | None = None
    finished_after: float | None = None
    finished_before: float | None = None
    order_by: str = "id"
    """id, iid, created_at, updated_at, finished_at or ref; then by id."""
    ascending: bool = False

    def states(self) -> list[str]:
        """Return the states of jobs, and statuses of deployments without a job, that `statuses` selects."""
        statuses = self.statuses or ()
        return sorted({state.value for status in statuses for state in STATES_BY_STATUS[status]} | set(statuses))

    def fits(self, deployment: Deployment, job: Job | None) -> bool:
        updated_at, finished_at = deployment.find_update_time(job), deployment.find_finish_time(job)
        return (
            deployment.project_id == self.project_id
            and self.environment_id in (None, deployment.environment_id)
            and (self.statuses is None or deployment.find_status(job) in self.statuses)
            and (self.updated_after is None or updated_at > self.updated_after)
            and (self.updated_before is None or updated_at < self.updated_before)
            and (self.finished_after is None or (finished_at is not None and finished_at > self.finished_after))
            and (self.finished_before is None or (finished_at is not None and finished_at < self.finished_before))
        )

    def sort_key(self, deployment: Deployment, job: Job | None) -> tuple[float | str, int]:
        """Return the key by which a deployment is sorted, ascending."""
        values: dict[str, float | str] = {
            "iid": deployment.iid,
            "updated_at": deployment.find_update_time(job),
            "finished_at": deployment.find_finish_time(job) or 0.0,
            "ref": deployment.ref,
        }
        return values.get(self.order_by, deployment.id), deployment.id
