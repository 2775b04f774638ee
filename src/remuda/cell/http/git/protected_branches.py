"""The protected branches of a project in GitLab's form: list them, and allow or forbid force pushes.

Only the default branch is protected. Maintainers push to it (`remuda.cell.http.git.smart_http`), and a push may only
add commits unless the project allows force pushes.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import json_answer, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.paging import slice_answer
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import Project
from remuda.cell.values.people import Level


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


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/protected_branches: list the default branch, the only protected one."""
    return slice_answer(request, [_view(edge, await project_in_path(edge, request))])


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/protected_branches/:name: show the protected branch."""
    return json_answer(_view(edge, await _project(edge, request)))


async def update(edge: Edge, request: Request) -> Response:
    """PATCH /projects/:id/protected_branches/:name: allow or forbid force pushes."""
    project = await _project(edge, request)
    params = await parameters(request, ProtectedBranchChange, limit_bytes=edge.settings.body_limit_bytes)
    allowed = params.allow_force_push
    if allowed is not None:
        changed = await edge.store.projects.change_project(
            project.id, lambda row: msgspec.structs.replace(row, allow_force_push=allowed)
        )
        project = changed or project
    return json_answer(_view(edge, project))


async def _project(edge: Edge, request: Request) -> Project:
    """The project; 404 unless the branch in the path is its protected one."""
    project = await project_in_path(edge, request)
    if text_in_path(request, "name") != default_branch(edge.projects.repos, project):
        raise not_found("Protected branch")
    return project


def _view(edge: Edge, project: Project) -> ProtectedBranchShape:
    maintainers = AccessLevelShape(access_level=Level.MAINTAINER, access_level_description="Maintainers")
    return ProtectedBranchShape(
        id=project.id,
        name=default_branch(edge.projects.repos, project),
        push_access_levels=[maintainers],
        merge_access_levels=[maintainers],
        allow_force_push=project.allow_force_push,
    )


_ROOT = "/api/v4/projects/{id}/protected_branches"
_ACCESS = in_project(Level.MAINTAINER)

ENDPOINTS = (
    Endpoint("GET", _ROOT, list_all, _ACCESS, gives=list[ProtectedBranchShape]),
    Endpoint("GET", f"{_ROOT}/{{name}}", show, _ACCESS, gives=ProtectedBranchShape),
    Endpoint("PATCH", f"{_ROOT}/{{name}}", update, _ACCESS, takes=ProtectedBranchChange, gives=ProtectedBranchShape),
)
