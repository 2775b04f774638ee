"""Resource groups in GitLab's form: list and show them, set their process mode, show which jobs use them. A group is
created with the first job that names it."""

from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.jobs.resource_groups import order_upcoming
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import describe
from remuda.cell.http.gitlab.views import JobShape, time_text
from remuda.cell.values import Page, Project
from remuda.cell.values.deployments import PROCESS_MODES, UPCOMING, ResourceGroup
from remuda.cell.values.people import Level
from remuda.model.job import OCCUPYING

_ROOT = "/api/v4/projects/{id}/resource_groups"
routes = Routes()


class ChangedGroup(msgspec.Struct, kw_only=True):
    process_mode: str | None = None


class ResourceGroupShape(Shape, kw_only=True):
    id: int
    key: str
    process_mode: str
    created_at: str | None
    updated_at: str | None


def _view(group: ResourceGroup) -> ResourceGroupShape:
    return ResourceGroupShape.of(group, created_at=time_text(group.created_at), updated_at=time_text(group.updated_at))


async def _find(edge: Edge, request: Request) -> ResourceGroup:
    project = await project_in_path(edge, request)
    group = await edge.store.deployments.find_resource_group(project.id, text_in_path(request, "key"))
    if group is None:
        raise not_found("Resource Group")
    return group


Found = Annotated[ResourceGroup, _find]


@routes.get(_ROOT, in_project(Level.REPORTER))
async def list_all(edge: Edge, project: Project) -> list[ResourceGroupShape]:
    """List the resource groups of a project."""
    return [_view(group) for group in await edge.store.deployments.list_resource_groups(project.id)]


@routes.get(f"{_ROOT}/{{key}}", in_project(Level.REPORTER))
async def show(edge: Edge, group: Found) -> ResourceGroupShape:
    """Show a resource group."""
    return _view(group)


@routes.put(f"{_ROOT}/{{key}}", in_project(Level.DEVELOPER))
async def change(edge: Edge, group: Found, params: ChangedGroup) -> ResourceGroupShape:
    """Set the process mode of a resource group: which of its jobs goes first."""
    if params.process_mode is None:
        return _view(group)
    if params.process_mode not in PROCESS_MODES:
        raise bad_parameter("process_mode does not have a valid value")
    changed = replace(group, process_mode=params.process_mode, updated_at=edge.clock.now())
    if not await edge.store.deployments.put_resource_group(changed):
        raise not_found("Resource Group")
    await edge.dispatch.changes.hand_on_resource_group(group.project_id, group.key)
    return _view(changed)


@routes.get(f"{_ROOT}/{{key}}/current_job", in_project(Level.REPORTER))
async def show_current_job(edge: Edge, caller: Caller, group: Found) -> JobShape:
    """Show the job that uses a resource group."""
    job = await edge.store.jobs.find_first_of_group(group.project_id, group.key, OCCUPYING)
    if job is None or not (views := await describe(edge, [job], caller)):
        raise not_found("Job")
    return views[0]


@routes.get(f"{_ROOT}/{{key}}/upcoming_jobs", in_project(Level.REPORTER))
async def list_upcoming_jobs(edge: Edge, caller: Caller, group: Found, page: Page) -> Paged[JobShape]:
    """List the jobs that will use a resource group, the next one first."""
    jobs = await edge.store.jobs.list_jobs_of_group(group.project_id, group.key, UPCOMING)
    ordered = order_upcoming(jobs, group.process_mode)
    start = (page.number - 1) * page.size
    return Paged(await describe(edge, ordered[start : start + page.size], caller), len(ordered), page)
