"""The job token allow list of a project in GitLab's form: projects and groups whose jobs may use their token here, and
the switch for it. Only projects and groups of the same organization that the caller sees can be added."""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.job_token_scope import MAX_ENTRIES
from remuda.cell.errors import InvalidError
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, require_visible
from remuda.cell.http.edge.auditing import add_audit_details
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import existing_group, existing_project, number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.groups import GroupShape, group_view
from remuda.cell.http.gitlab.projects import describe_project
from remuda.cell.http.gitlab.views import ProjectShape
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.model.job import ProjectId

_ROOT = "/api/v4/projects/{id}/job_token_scope"
_PROJECTS, _GROUPS = f"{_ROOT}/allowlist", f"{_ROOT}/groups_allowlist"
_ACCESS = in_project(Level.MAINTAINER)
routes = Routes()


class ScopeChange(msgspec.Struct, kw_only=True):
    enabled: bool


_UNSUPPORTED = Unsupported(refused={"default_permissions": (True,), "job_token_policies": ()})
"""What would give the jobs of an entry fewer rights."""


class NewProjectEntry(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = _UNSUPPORTED
    target_project_id: int


class NewGroupEntry(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = _UNSUPPORTED
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


@routes.get(_ROOT, _ACCESS)
async def show(edge: Edge, project: Project) -> ScopeShape:
    """Show whether the job token allow list is enabled; if not, jobs of all projects are admitted."""
    return ScopeShape(inbound_enabled=project.job_token_scope_enabled)


@routes.patch(_ROOT, _ACCESS)
async def update(edge: Edge, request: Request, project: Project, params: ScopeChange) -> None:
    """Enable the job token allow list, or disable it, which admits the jobs of all projects."""
    await _change(edge, project, "job_token_scope_enabled", lambda _: params.enabled)
    add_audit_details(request, enabled=params.enabled)


@routes.get(_PROJECTS, _ACCESS)
async def list_projects(edge: Edge, project: Project) -> list[ProjectShape]:
    """List the projects on the job token allow list, the project itself first."""
    projects = [
        project,
        *[await edge.store.projects.load_project(ProjectId(number)) for number in project.job_token_projects],
    ]
    return [describe_project(edge, other) for other in projects if other is not None and other.removed_at is None]


@routes.post(_PROJECTS, _ACCESS)
async def add_project(edge: Edge, caller: Caller, project: Project, params: NewProjectEntry) -> ProjectEntryShape:
    """Add a project to the job token allow list."""
    target = await existing_project(edge, params.target_project_id, "Target project")
    if target.organization_id != project.organization_id:
        raise not_found("Target project")
    require_visible(caller.level_in(target), "Target project")
    if target.id == project.id:
        raise InvalidError("The project itself is always in its list")
    await _change(edge, project, "job_token_projects", lambda entries: _add_entry(entries, target.id, "Target project"))
    return ProjectEntryShape(source_project_id=project.id, target_project_id=target.id)


@routes.delete(f"{_PROJECTS}/{{target_project_id}}", _ACCESS)
async def remove_project(edge: Edge, request: Request, project: Project) -> None:
    """Remove a project from the job token allow list."""
    number = number_in_path(request, "target_project_id")
    if number == project.id:
        raise InvalidError("The project itself is always in its list")
    await _change(edge, project, "job_token_projects", lambda entries: _remove_entry(entries, number, "Target project"))


@routes.get(_GROUPS, _ACCESS)
async def list_groups(edge: Edge, project: Project) -> list[GroupShape]:
    """List the groups on the job token allow list."""
    groups = [await edge.store.people.load_namespace(number) for number in project.job_token_groups]
    return [group_view(group, edge.settings.url) for group in groups if group is not None]


@routes.post(_GROUPS, _ACCESS)
async def add_group(edge: Edge, caller: Caller, project: Project, params: NewGroupEntry) -> GroupEntryShape:
    """Add a group with all its projects to the job token allow list."""
    group = await existing_group(edge, params.target_group_id, "Target group")
    if group.organization_id != project.organization_id:
        raise not_found("Target group")
    require_visible(caller.level_in_group(group), "Target group")
    await _change(edge, project, "job_token_groups", lambda entries: _add_entry(entries, group.id, "Target group"))
    return GroupEntryShape(source_project_id=project.id, target_group_id=group.id)


@routes.delete(f"{_GROUPS}/{{target_group_id}}", _ACCESS)
async def remove_group(edge: Edge, request: Request, project: Project) -> None:
    """Remove a group from the job token allow list."""
    number = number_in_path(request, "target_group_id")
    await _change(edge, project, "job_token_groups", lambda entries: _remove_entry(entries, number, "Target group"))


async def _change(edge: Edge, project: Project, field: str, decide: Callable[[Any], Any]) -> None:
    """Change a field of the project: `decide` gets its value and returns the new one. ApiError 404 if it is gone."""

    def change(row: Project) -> Project:
        return replace(row, **{field: decide(getattr(row, field))})

    if await edge.store.projects.change_project(project.id, change) is None:
        raise not_found("Project")


def _add_entry(entries: tuple[int, ...], number: int, what: str) -> tuple[int, ...]:
    if number in entries:
        raise InvalidError(f"{what} is already in the job token scope")
    if len(entries) >= MAX_ENTRIES:
        raise InvalidError(f"the list has {MAX_ENTRIES} entries, which is the limit; add a group instead")
    return (*entries, number)


def _remove_entry(entries: tuple[int, ...], number: int, what: str) -> tuple[int, ...]:
    if number not in entries:
        raise not_found(what)
    return tuple(entry for entry in entries if entry != number)
