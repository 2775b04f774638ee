"""Search in GitLab's form, for projects and users. A cell has no index of code, issues or wikis: these scopes are
refused with the scopes that exist, and there is no search in a project."""

from collections.abc import Sequence
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import USER, in_group
from remuda.cell.http.edge.admission import caller_of
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter
from remuda.cell.http.edge.paging import page_answer, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.projects import page_of_projects
from remuda.cell.http.gitlab.views import ProjectShape, user_view
from remuda.cell.values.people import Namespace, ProjectFilter

_SCOPES = ("projects", "users")
_QUERY = {"scope": Literal[_SCOPES], "search": str}
_FOUND = list[dict[str, Any]]
routes = Routes()


def _check(request: Request, scopes: Sequence[str]) -> str:
    """The scope of a search. Raises ApiError 400 if it is missing or not one of `scopes`, or no text is given."""
    scope = request.query_params.get("scope", "")
    if scope not in scopes:
        problem = "does not have a valid value" if scope else "is missing"
        raise bad_parameter(f"scope {problem}: a cell searches {' and '.join(scopes)} here")
    if not request.query_params.get("search", "").strip():
        raise bad_parameter("search is missing")
    return scope


@routes.get("/api/v4/search", USER, query=_QUERY, gives=_FOUND)
async def search_all(edge: Edge, request: Request) -> Response:
    """Search for projects or users that the caller may see."""
    if _check(request, _SCOPES) == "projects":
        return await _projects(edge, request, ProjectFilter())
    caller, page = caller_of(request).user, page_of(request)
    users, total = await edge.store.people.list_users(
        page,
        search=request.query_params["search"],
        organization_id=None if caller.is_admin else caller.organization_id,
    )
    return page_answer(request, [user_view(edge.settings.url, user) for user in users], total, page)


@routes.get("/api/v4/groups/{id}/search", in_group(0), query=_QUERY, gives=list[ProjectShape])
async def search_group(edge: Edge, request: Request, group: Namespace) -> Response:
    """Search for projects in a group and its subgroups."""
    _check(request, ("projects",))
    return await _projects(edge, request, ProjectFilter(group_id=group.id))


async def _projects(edge: Edge, request: Request, project_filter: ProjectFilter) -> Response:
    found = await page_of_projects(edge, request, project_filter)
    return page_answer(request, found.entries, found.total, found.page)
