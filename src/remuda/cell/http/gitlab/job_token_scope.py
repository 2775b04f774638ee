"""The job token allow list of a project in GitLab's form: the switch, and the projects and groups on the list.

Only what the caller may see, in the same organization, can be added. `remuda.cell.core.access.job_token_scope` says
what the list allows.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.access.job_token_scope import MAX_ENTRIES
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import caller_of, require_visible
from remuda.cell.http.edge.auditing import add_audit_details
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import ApiError, json_answer, no_content, not_found
from remuda.cell.http.edge.lookup import number_in_path, project_in_path
from remuda.cell.http.edge.paging import slice_answer
from remuda.cell.http.gitlab.groups import GroupShape, group_view
from remuda.cell.http.gitlab.projects import describe_project
from remuda.cell.http.gitlab.views import ProjectShape
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.model.job import ProjectId


class ScopeChange(msgspec.Struct, kw_only=True):
    enabled: bool


class NewProjectEntry(msgspec.Struct, kw_only=True):
    target_project_id: int


class NewGroupEntry(msgspec.Struct, kw_only=True):
    target_group_id: int


class ScopeShape(Shape, kw_only=True):
    inbound_enabled: bool
    outbound_enabled: bool = False


class ProjectEntryShape(Shape, kw_only=True):
    source_project_id: int
    target_project_id: int


class GroupEntryShape(Shape, kw_only=True):
    source_project_id: int
    target_group_id: int


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/job_token_scope: show whether the allow list is enabled."""
    project = await project_in_path(edge, request)
    return json_answer(ScopeShape(inbound_enabled=project.job_token_scope_enabled))


async def update(edge: Edge, request: Request) -> Response:
    """PATCH /projects/:id/job_token_scope: enable the allow list, or disable it to admit all jobs."""
    params = await parameters(request, ScopeChange, limit_bytes=edge.settings.body_limit_bytes)
    await _change(edge, request, lambda row: replace(row, job_token_scope_enabled=params.enabled))
    add_audit_details(request, enabled=params.enabled)
    return no_content()


async def list_projects(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/job_token_scope/allowlist: list the allowed projects, itself first."""
    project = await project_in_path(edge, request)
    projects = [
        project,
        *[await edge.store.projects.load_project(ProjectId(number)) for number in project.job_token_projects],
    ]
    views: list[ProjectShape] = [
        describe_project(edge, other) for other in projects if other is not None and other.removed_at is None
    ]
    return slice_answer(request, views)


async def add_project(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/job_token_scope/allowlist: add a project."""
    project = await project_in_path(edge, request)
    params = await parameters(request, NewProjectEntry, limit_bytes=edge.settings.body_limit_bytes)
    target = await edge.store.projects.load_project(ProjectId(params.target_project_id))
    if target is None or target.removed_at is not None or target.organization_id != project.organization_id:
        raise not_found("Target project")
    require_visible(caller_of(request).level_in(target), "Target project")
    if target.id == project.id:
        raise _bad_request("The project itself is always in its list")

    def change(row: Project) -> Project:
        return replace(row, job_token_projects=_add_entry(row.job_token_projects, target.id, "Target project"))

    await _change(edge, request, change)
    return json_answer(ProjectEntryShape(source_project_id=project.id, target_project_id=target.id), 201)


async def remove_project(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/job_token_scope/allowlist/:target_project_id: remove a project."""
    project, number = await project_in_path(edge, request), number_in_path(request, "target_project_id")
    if number == project.id:
        raise _bad_request("The project itself is always in its list")

    def change(row: Project) -> Project:
        return replace(row, job_token_projects=_remove_entry(row.job_token_projects, number, "Target project"))

    await _change(edge, request, change)
    return no_content()


async def list_groups(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/job_token_scope/groups_allowlist: list the allowed groups."""
    project = await project_in_path(edge, request)
    groups = [await edge.store.people.load_namespace(number) for number in project.job_token_groups]
    views: list[GroupShape] = [group_view(group, edge.settings.url) for group in groups if group is not None]
    return slice_answer(request, views)


async def add_group(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/job_token_scope/groups_allowlist: add a group with all its projects."""
    project = await project_in_path(edge, request)
    params = await parameters(request, NewGroupEntry, limit_bytes=edge.settings.body_limit_bytes)
    group = await edge.store.people.load_namespace(params.target_group_id)
    if group is None or not group.is_group or group.organization_id != project.organization_id:
        raise not_found("Target group")
    require_visible(caller_of(request).level_in_group(group), "Target group")

    def change(row: Project) -> Project:
        return replace(row, job_token_groups=_add_entry(row.job_token_groups, group.id, "Target group"))

    await _change(edge, request, change)
    return json_answer(GroupEntryShape(source_project_id=project.id, target_group_id=group.id), 201)


async def remove_group(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/job_token_scope/groups_allowlist/:target_group_id: remove a group."""
    number = number_in_path(request, "target_group_id")

    def change(row: Project) -> Project:
        return replace(row, job_token_groups=_remove_entry(row.job_token_groups, number, "Target group"))

    await _change(edge, request, change)
    return no_content()


async def _change(edge: Edge, request: Request, decide: Callable[[Project], Project]) -> None:
    project = await project_in_path(edge, request)
    if await edge.store.projects.change_project(project.id, decide) is None:
        raise not_found("Project")


def _add_entry(entries: tuple[int, ...], number: int, what: str) -> tuple[int, ...]:
    if number in entries:
        raise _bad_request(f"{what} is already in the job token scope")
    if len(entries) >= MAX_ENTRIES:
        raise _bad_request(f"the list has {MAX_ENTRIES} entries, which is the limit; add a group instead")
    return (*entries, number)


def _remove_entry(entries: tuple[int, ...], number: int, what: str) -> tuple[int, ...]:
    if number not in entries:
        raise not_found(what)
    return tuple(entry for entry in entries if entry != number)


def _bad_request(reason: str) -> ApiError:
    return ApiError(400, {"message": reason})


_ROOT = "/api/v4/projects/{id}/job_token_scope"
_PROJECTS, _GROUPS = f"{_ROOT}/allowlist", f"{_ROOT}/groups_allowlist"
_ACCESS = in_project(Level.MAINTAINER)

ENDPOINTS = (
    Endpoint("GET", _ROOT, show, _ACCESS, gives=ScopeShape),
    Endpoint("PATCH", _ROOT, update, _ACCESS, takes=ScopeChange),
    Endpoint("GET", _PROJECTS, list_projects, _ACCESS, gives=list[ProjectShape]),
    Endpoint("POST", _PROJECTS, add_project, _ACCESS, takes=NewProjectEntry, gives=ProjectEntryShape),
    Endpoint("DELETE", f"{_PROJECTS}/{{target_project_id}}", remove_project, _ACCESS),
    Endpoint("GET", _GROUPS, list_groups, _ACCESS, gives=list[GroupShape]),
    Endpoint("POST", _GROUPS, add_group, _ACCESS, takes=NewGroupEntry, gives=GroupEntryShape),
    Endpoint("DELETE", f"{_GROUPS}/{{target_group_id}}", remove_group, _ACCESS),
)
