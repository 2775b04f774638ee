"""Projects as GitLab's API has them: create, show, list. The rules for paths are in `remuda.cell.projects`."""

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.http.bodies import parameters
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import bad_field, bad_parameter, json_answer
from remuda.cell.http.lookup import project_in_path
from remuda.cell.http.pagination import page_answer, page_of
from remuda.cell.http.views import View, project_view
from remuda.cell.values import Project

DEFAULT_NAMESPACE = "root"
"""Where a project goes whose path names no namespace: the administrator's own."""
NAMESPACE_ID = 1
_MAX_NAME = 255
_MAX_DESCRIPTION = 2000


class NewProject(msgspec.Struct, kw_only=True):
    """POST /projects. `path` may carry its namespace (`acme/shop`), which exists as soon as a project is in it."""

    name: str | None = None
    path: str | None = None
    namespace_id: int | None = None
    description: str | None = None
    default_branch: str | None = None


async def create(edge: Edge, request: Request) -> Response:
    """POST /projects."""
    asked = await parameters(request, NewProject, limit_bytes=edge.settings.body_limit_bytes)
    if not asked.name and not asked.path:
        raise bad_parameter("name, path are missing, at least one parameter must be provided")
    if asked.namespace_id not in (None, NAMESPACE_ID):
        raise bad_field("namespace", "is not valid")
    path = asked.path or _slug(asked.name or "")
    name = asked.name or path.rpartition("/")[2]
    if len(name) > _MAX_NAME or not name.isprintable():
        raise bad_field("name", f"is too long (maximum is {_MAX_NAME} characters) or has control characters")
    if len(asked.description or "") > _MAX_DESCRIPTION:
        raise bad_field("description", f"is too long (maximum is {_MAX_DESCRIPTION} characters)")
    try:
        project = await edge.projects.create(
            path if "/" in path else f"{DEFAULT_NAMESPACE}/{path}",
            name=name,
            description=asked.description or "",
            default_branch=asked.default_branch or "main",
        )
    except (ConflictError, InvalidError) as error:
        raise bad_field("path", str(error)) from None
    return json_answer(view(edge, project, is_empty=True), 201)


def _slug(name: str) -> str:
    """A path for a project that was only given a name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "project"


def view(edge: Edge, project: Project, *, is_empty: bool | None = None) -> View:
    """The project with the default branch that its repository has now."""
    return project_view(project, edge.settings.url, edge.projects.repos.head(project.repo_path), is_empty=is_empty)


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id."""
    project = await project_in_path(edge, request)
    is_empty = await edge.projects.repos.is_empty(project.repo_path)
    return json_answer(view(edge, project, is_empty=is_empty))


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects."""
    page = page_of(request)
    found, total = await edge.store.projects(page, search=request.query_params.get("search", ""))
    return page_answer(request, [view(edge, project) for project in found], total, page)


ENDPOINTS = (
    Endpoint("POST", "/api/v4/projects", create),
    Endpoint("GET", "/api/v4/projects", list_all),
    Endpoint("GET", "/api/v4/projects/{id}", show),
)
