"""Responses for environments and deployments, in GitLab's form. `environments` and `deployments` give them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.gitlab.jobs import describe
from remuda.cell.http.gitlab.views import JobShape, ProjectSummaryShape, UserShape, summary_fields, time_text, user_view
from remuda.cell.values import Project
from remuda.cell.values.deployments import Deployment, Environment
from remuda.cell.values.people import FIRST_USER


class EnvironmentSummaryShape(Shape, kw_only=True):
    """An environment with the fields that are shown inside a deployment."""

    id: int
    name: str
    slug: str
    external_url: str | None
    created_at: str | None
    updated_at: str | None


class DeploymentShape(Shape, kw_only=True):
    id: int
    iid: int
    ref: str
    sha: str
    created_at: str | None
    updated_at: str | None
    status: str
    user: UserShape
    environment: EnvironmentSummaryShape | UnsetType = UNSET
    deployable: JobShape | None
    pending_approval_count: int = 0
    approvals: list[dict[str, Any]] = msgspec.field(default_factory=list)


class EnvironmentShape(EnvironmentSummaryShape, kw_only=True):
    description: str | None
    state: str
    tier: str
    auto_stop_at: str | None
    auto_stop_setting: str
    kubernetes_namespace: None = None
    flux_resource_path: None = None
    cluster_agent: None = None
    project: ProjectSummaryShape | UnsetType = UNSET
    last_deployment: DeploymentShape | UnsetType | None = UNSET


def environment_summary(environment: Environment) -> EnvironmentSummaryShape:
    return EnvironmentSummaryShape.of(environment, **_common(environment))


def _common(environment: Environment) -> dict[str, Any]:
    return {
        "external_url": environment.external_url or None,
        "created_at": time_text(environment.created_at),
        "updated_at": time_text(environment.updated_at),
    }


def environment_view(environment: Environment) -> EnvironmentShape:
    return EnvironmentShape.of(
        environment,
        **_common(environment),
        description=environment.description or None,
        auto_stop_at=time_text(environment.auto_stop_at),
    )


def environment_in_list(environment: Environment, project: Project) -> EnvironmentShape:
    """The response for an environment in a list and after a change, which has the project."""
    view = environment_view(environment)
    view.project = ProjectSummaryShape.of(project, **summary_fields(project))
    return view


async def describe_deployments(
    edge: Edge, deployments: Sequence[Deployment], caller: Caller | None, *, with_environment: bool = True
) -> list[DeploymentShape]:
    """Build the responses for deployments, each with its job (`deployable`) and, if asked for, its environment."""
    jobs = await edge.store.jobs.load_jobs([row.job_id for row in deployments if row.job_id is not None])
    by_id = {job.id: job for job in jobs}
    views = {view.id: view for view in await describe(edge, jobs, caller)}
    environments: dict[int, Environment | None] = {}
    shapes = []
    for row in deployments:
        job = by_id.get(row.job_id) if row.job_id is not None else None
        user = await edge.store.people.load_user(row.user_id)
        shape = DeploymentShape.of(
            row,
            created_at=time_text(row.created_at),
            updated_at=time_text(row.find_update_time(job)),
            status=row.find_status(job),
            user=user_view(edge.settings.url, user or FIRST_USER),
            deployable=views.get(job.id) if job else None,
        )
        if with_environment:
            if row.environment_id not in environments:
                environments[row.environment_id] = await edge.store.deployments.load_environment(row.environment_id)
            if (environment := environments[row.environment_id]) is not None:
                shape.environment = environment_summary(environment)
        shapes.append(shape)
    return shapes
