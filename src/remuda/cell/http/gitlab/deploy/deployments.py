"""Deployments in GitLab's form. Jobs with an environment make them; other tools can record theirs here. Those of jobs
cannot be changed: their status is that of the job."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.payload.predefined_variables import environment_slug, tier
from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import optional_caller, user_of_call
from remuda.cell.http.edge.bodies import choice_in_query, time_in_query
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, forbidden, not_found
from remuda.cell.http.edge.lookup import number_in_path, project_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.deploy.views import DeploymentShape, describe_deployments
from remuda.cell.projects.refs import find_ref
from remuda.cell.values import Page, Project
from remuda.cell.values.deployments import (
    AVAILABLE,
    STATES_BY_STATUS,
    Deployment,
    DeploymentFilter,
    Environment,
)
from remuda.cell.values.people import Level
from remuda.pipeline.keywords.environment import MAX_NAME

_ROOT = "/api/v4/projects/{id}/deployments"
_ORDERS = ("id", "iid", "created_at", "updated_at", "finished_at", "ref")
_GIVEN = ("running", "success", "failed", "canceled")
_TIMES = ("updated_after", "updated_before", "finished_after", "finished_before")
_READ = in_project(Level.REPORTER, or_job="deployments")
_WRITE = in_project(Level.DEVELOPER, or_job="deployments")
routes = Routes()


class NewDeployment(msgspec.Struct, kw_only=True):
    environment: str
    sha: str
    ref: str
    tag: bool
    status: str


class ChangedDeployment(msgspec.Struct, kw_only=True):
    status: str


async def _find(edge: Edge, request: Request) -> Deployment:
    project = await project_in_path(edge, request)
    deployment = await edge.store.deployments.load_deployment(number_in_path(request, "deployment_id"))
    if deployment is None or deployment.project_id != project.id:
        raise not_found("Deployment")
    return deployment


Found = Annotated[Deployment, _find]


async def _describe(edge: Edge, deployment: Deployment, request: Request) -> DeploymentShape:
    return (await describe_deployments(edge, [deployment], optional_caller(request)))[0]


@routes.get(
    _ROOT,
    _READ,
    query={
        "environment": str,
        "status": Literal[tuple(STATES_BY_STATUS)],
        "order_by": Literal[_ORDERS],
        "sort": Literal["asc", "desc"],
        **dict.fromkeys(_TIMES, str),
    },
)
async def list_all(edge: Edge, request: Request, project: Project, page: Page) -> Paged[DeploymentShape]:
    """List the deployments of a project."""
    status = choice_in_query(request, "status", STATES_BY_STATUS)
    selection = DeploymentFilter(
        project_id=project.id,
        statuses=(status,) if status else None,
        order_by=choice_in_query(request, "order_by", _ORDERS, "id"),
        ascending=choice_in_query(request, "sort", ("asc", "desc"), "asc") == "asc",
        updated_after=time_in_query(request, "updated_after"),
        updated_before=time_in_query(request, "updated_before"),
        finished_after=time_in_query(request, "finished_after"),
        finished_before=time_in_query(request, "finished_before"),
    )
    if name := request.query_params.get("environment"):
        environment = await edge.store.deployments.find_environment(project.id, name)
        selection = replace(selection, environment_id=environment.id if environment else 0)
    deployments, total = await edge.store.deployments.list_deployments(page, selection)
    return Paged(await describe_deployments(edge, deployments, optional_caller(request)), total, page)


@routes.get(f"{_ROOT}/{{deployment_id}}", _READ)
async def show(edge: Edge, request: Request, deployment: Found) -> DeploymentShape:
    """Show a deployment."""
    return await _describe(edge, deployment, request)


@routes.post(_ROOT, _WRITE)
async def create(edge: Edge, request: Request, project: Project, params: NewDeployment) -> DeploymentShape:
    """Record a deployment that no job made. Creates the environment if there is none of this name."""
    if params.status not in _GIVEN:
        raise bad_parameter("status does not have a valid value")
    name = params.environment.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise bad_parameter("environment does not have a valid value")
    sha = await edge.projects.repos.resolve(project.repo_path, params.sha)
    if sha is None:
        raise bad_field("sha", "The commit does not exist")
    prefix = "refs/tags/" if params.tag else "refs/heads/"
    if await find_ref(edge.projects.repos, project, f"{prefix}{params.ref}") is None:
        raise bad_field("ref", "The branch or tag does not exist")
    now = edge.clock.now()
    deployment = Deployment(
        id=0,
        iid=0,
        project_id=project.id,
        environment_id=(await _ensure_environment(edge, project, name, now)).id,
        ref=params.ref,
        tag=params.tag,
        sha=sha,
        created_at=now,
        user_id=await user_of_call(edge, request),
        status=params.status,
        updated_at=now,
        finished_at=None if params.status == "running" else now,
    )
    added = await edge.store.deployments.add_deployment(deployment, after=lambda row: _after(row, params.status, now))
    return await _describe(edge, added, request)


async def _ensure_environment(edge: Edge, project: Project, name: str, now: float) -> Environment:
    new = Environment(
        id=0,
        project_id=project.id,
        name=name,
        slug=environment_slug(name),
        tier=tier(name),
        created_at=now,
        updated_at=now,
    )
    existing = await edge.store.deployments.find_environment(project.id, name)
    try:
        return existing or await edge.store.deployments.add_environment(new)
    except ConflictError:
        # Another request has just added it.
        existing = await edge.store.deployments.find_environment(project.id, name)
        if existing is None:
            raise
        return existing


def _after(environment: Environment, status: str, now: float) -> Environment:
    """Return the environment after a deployment of a client: a successful one makes it available."""
    return replace(environment, state=AVAILABLE, updated_at=now) if status == "success" else environment


@routes.put(f"{_ROOT}/{{deployment_id}}", _WRITE)
async def change(edge: Edge, request: Request, deployment: Found, params: ChangedDeployment) -> DeploymentShape:
    """Change the status of a deployment that no job made."""
    if deployment.job_id is not None:
        raise forbidden("Deployments created using GitLab CI can not be updated using the API")
    if params.status not in _GIVEN:
        raise bad_parameter("status does not have a valid value")
    now = edge.clock.now()

    def decide(row: Deployment) -> Deployment | None:
        if params.status == "running" and row.status != "running":
            return None
        finished = None if params.status == "running" else now
        return replace(row, status=params.status, updated_at=now, finished_at=finished)

    changed = await edge.store.deployments.change_deployment(
        deployment.id, decide, after=lambda row: _after(row, params.status, now)
    )
    if changed is None:
        raise bad_field("status", "cannot become running again; record a new deployment")
    return await _describe(edge, changed, request)


@routes.delete(f"{_ROOT}/{{deployment_id}}", in_project(Level.MAINTAINER))
async def remove(edge: Edge, deployment: Found) -> None:
    """Delete a deployment that neither runs nor is the last one of its environment."""
    job = await edge.store.jobs.load_job(deployment.job_id) if deployment.job_id is not None else None
    if deployment.find_status(job) == "running":
        raise ApiError(400, {"message": "Cannot destroy running deployment"})
    environment = await edge.store.deployments.load_environment(deployment.environment_id)
    last = await edge.store.deployments.find_last_deployment(environment) if environment else None
    if last is not None and last.id == deployment.id:
        raise ApiError(400, {"message": "Deployment currently deployed to environment"})
    await edge.store.deployments.remove_deployment(deployment.id)


@routes.get(f"{_ROOT}/{{deployment_id}}/merge_requests", in_project(Level.REPORTER))
async def list_merge_requests(edge: Edge, deployment: Found, page: Page) -> Paged[dict[str, Any]]:
    """List the merge requests that a deployment shipped. The list is always empty."""
    return Paged([], 0, page)
