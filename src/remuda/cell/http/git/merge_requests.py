"""Merge requests in GitLab's form. A cell has none: people review elsewhere, and a cell only runs pipelines for refs of
merge requests. Lists are empty and a single one is not found, so that clients which look for them go on."""

from typing import Any

from starlette.requests import Request

from remuda.cell.http.edge.access import USER, in_group, in_project
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.repository import resolve_commit
from remuda.cell.values import Page, Project
from remuda.cell.values.people import Level, Namespace

_QUERY = {"state": str, "scope": str, "source_branch": str, "target_branch": str, "search": str}
routes = Routes()


@routes.get("/api/v4/merge_requests", USER, query=_QUERY)
async def list_own(edge: Edge, page: Page) -> Paged[dict[str, Any]]:
    """List the merge requests of the user. The list is always empty: a cell has no merge requests."""
    return Paged([], 0, page)


@routes.get("/api/v4/groups/{id}/merge_requests", in_group(0), query=_QUERY)
async def list_of_group(edge: Edge, group: Namespace, page: Page) -> Paged[dict[str, Any]]:
    """List the merge requests of a group. The list is always empty."""
    return Paged([], 0, page)


@routes.get("/api/v4/projects/{id}/merge_requests", in_project(Level.REPORTER), query=_QUERY)
async def list_of_project(edge: Edge, project: Project, page: Page) -> Paged[dict[str, Any]]:
    """List the merge requests of a project. The list is always empty."""
    return Paged([], 0, page)


@routes.get("/api/v4/projects/{id}/merge_requests/{iid}", in_project(Level.REPORTER))
async def show(edge: Edge, project: Project) -> dict[str, Any]:
    """Show a merge request. The answer is always 404."""
    raise not_found("Merge Request")


@routes.get("/api/v4/projects/{id}/repository/commits/{sha}/merge_requests", in_project(Level.REPORTER))
async def list_of_commit(edge: Edge, request: Request, project: Project, page: Page) -> Paged[dict[str, Any]]:
    """List the merge requests that introduced a commit. The list is always empty."""
    await resolve_commit(edge, project, text_in_path(request, "sha"))
    return Paged([], 0, page)
