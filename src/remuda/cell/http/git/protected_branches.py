"""The protected branches of a project in GitLab's form. Only the default branch is protected: only maintainers may push
to it, and force pushes are refused unless the project allows them."""

from typing import Annotated

import msgspec
from starlette.requests import Request

from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import Project
from remuda.cell.values.people import Level

_ROOT = "/api/v4/projects/{id}/protected_branches"
_ACCESS = in_project(Level.MAINTAINER)
routes = Routes()


class ProtectedBranchChange(msgspec.Struct, kw_only=True):
    allow_force_push: bool | None = None


class AccessLevelShape(Shape, kw_only=True):
    access_level: int
    access_level_description: str


class ProtectedBranchShape(Shape, kw_only=True):
    id: int
    name: str
    push_access_levels: list[AccessLevelShape]
    merge_access_levels: list[AccessLevelShape]
    allow_force_push: bool


async def _find(edge: Edge, request: Request) -> Project:
    """The project in the path. Raises ApiError 404 unless the branch in the path is its protected branch."""
    project = await project_in_path(edge, request)
    if text_in_path(request, "name") != default_branch(edge.projects.repos, project):
        raise not_found("Protected branch")
    return project


@routes.get(_ROOT, _ACCESS)
async def list_all(edge: Edge, project: Project) -> list[ProtectedBranchShape]:
    """List the default branch, the only protected one."""
    return [_view(edge, project)]


@routes.get(f"{_ROOT}/{{name}}", _ACCESS)
async def show(edge: Edge, project: Annotated[Project, _find]) -> ProtectedBranchShape:
    """Show the protected branch."""
    return _view(edge, project)


@routes.patch(f"{_ROOT}/{{name}}", _ACCESS)
async def update(edge: Edge, project: Annotated[Project, _find], params: ProtectedBranchChange) -> ProtectedBranchShape:
    """Allow or forbid force pushes."""
    allowed = params.allow_force_push
    if allowed is not None:
        changed = await edge.store.projects.change_project(
            project.id, lambda row: msgspec.structs.replace(row, allow_force_push=allowed)
        )
        project = changed or project
    return _view(edge, project)


def _view(edge: Edge, project: Project) -> ProtectedBranchShape:
    maintainers = AccessLevelShape(access_level=Level.MAINTAINER, access_level_description="Maintainers")
    return ProtectedBranchShape(
        id=project.id,
        name=default_branch(edge.projects.repos, project),
        push_access_levels=[maintainers],
        merge_access_levels=[maintainers],
        allow_force_push=project.allow_force_push,
    )
