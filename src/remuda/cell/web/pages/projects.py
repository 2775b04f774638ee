"""The list of projects, the form for a new one, the home of a project, and the search for projects and groups."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from remuda.cell.values.people import Level
from remuda.cell.web.page_api import Reply
from remuda.cell.web.places import find_project_level, page_number, project_api
from remuda.cell.web.visit import Pages, Visit

pages = Pages()
_ON_A_PAGE = 30
_NAMESPACES = 100
"""How many namespaces the form for a new project suggests."""
_ARCHIVED = {"": "false", "only": "true", "all": ""}


@pages.get("/projects")
async def show_projects(visit: Visit) -> Response:
    page = page_number(visit)
    archived = visit.query("archived")
    query = {
        "search": visit.query("search"),
        "visibility": visit.query("visibility"),
        "membership": visit.query("membership"),
        "archived": _ARCHIVED.get(archived, "false"),
        "page": page,
        "per_page": _ON_A_PAGE,
    }
    reply = await visit.api.call("GET", "/api/v4/projects", {name: value for name, value in query.items() if value})
    return visit.render(
        "projects.html", reply=reply, page=page, last=await load_last_pipelines(visit, reply.value), chosen=query
    )


async def load_last_pipelines(visit: Visit, projects: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    """The newest pipeline of each project by the project's id; None if it has none, or the user may not see it."""

    async def load(project: Mapping[str, Any]) -> Any:
        pipelines = await visit.api.find(f"{project_api(project)}/pipelines", per_page=1, pagination="keyset")
        return pipelines[0] if pipelines else None

    async with asyncio.TaskGroup() as group:
        tasks = {
            project["id"]: group.create_task(load(project), name=f"last pipeline of project {project['id']}")
            for project in projects
        }
    return {number: task.result() for number, task in tasks.items()}


@pages.get("/projects/new")
async def show_new_project(visit: Visit) -> Response:
    namespaces = await visit.api.get("/api/v4/namespaces", per_page=_NAMESPACES)
    return visit.render(
        "project_new.html", namespaces=namespaces, inside=visit.query("in") or visit.caller.user.username
    )


@pages.get("/search")
async def search(visit: Visit) -> Response:
    text, page = visit.query("q"), page_number(visit)
    projects = groups = Reply(value=[], headers={})
    if text:
        query = {"search": text, "page": page, "per_page": _ON_A_PAGE}
        projects = await visit.api.call("GET", "/api/v4/projects", query)
        groups = await visit.api.call("GET", "/api/v4/groups", query)
    longer = groups if groups.next_page else projects
    return visit.render("search.html", text=text, page=page, projects=projects, groups=groups, longer=longer)


async def show_project_home(visit: Visit, project: Mapping[str, Any]) -> Response:
    """The home of a project. `paths` calls it, because its address is only the path of the project."""
    api = project_api(project)
    pipelines = await visit.api.find(f"{api}/pipelines", per_page=8)
    commits = [] if project.get("empty_repo") else await visit.api.find(f"{api}/repository/commits", per_page=1)
    members = await visit.api.call("GET", f"{api}/members/all", {"per_page": 1})
    level = await find_project_level(visit, project)
    return visit.render(
        "project_home.html",
        project=project,
        tab="Project",
        pipelines=pipelines,
        commit=commits[0] if commits else None,
        members=members.total,
        can_push=level >= Level.DEVELOPER and not project["archived"],
    )
