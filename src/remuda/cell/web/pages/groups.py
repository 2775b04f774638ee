"""The home of a group with its subgroups and projects, the list of groups, and the form for a new group."""

from starlette.responses import Response

from remuda.cell.values.people import Level
from remuda.cell.web.pages.projects import load_last_pipelines
from remuda.cell.web.places import find_group_level, group_api, load_group, page_number, segment
from remuda.cell.web.visit import Pages, Visit

pages = Pages()
_ON_A_PAGE = 30
_SUBGROUPS = 100


@pages.get("/groups")
async def show_groups(visit: Visit) -> Response:
    page = page_number(visit)
    query = {"search": visit.query("search"), "page": page, "per_page": _ON_A_PAGE}
    reply = await visit.api.call("GET", "/api/v4/groups", query)
    return visit.render("groups.html", reply=reply, page=page)


@pages.get("/groups/new")
async def show_new_group(visit: Visit) -> Response:
    path = visit.query("in")
    parent = await visit.api.get(f"/api/v4/groups/{segment(path)}") if path else None
    return visit.render("group_new.html", parent=parent)


@pages.get("/groups/{group:path}")
async def show_group(visit: Visit) -> Response:
    group = await load_group(visit)
    page, api = page_number(visit), group_api(group)
    level = await find_group_level(visit, group)
    projects = await visit.api.call("GET", f"{api}/projects", {"page": page, "per_page": _ON_A_PAGE})
    subgroups = await visit.api.call("GET", f"{api}/subgroups", {"per_page": _SUBGROUPS})
    return visit.render(
        "group_home.html",
        group=group,
        tab="Group",
        subgroups=subgroups,
        projects=projects,
        page=page,
        last=await load_last_pipelines(visit, projects.value),
        members=(await visit.api.call("GET", f"{api}/members/all", {"per_page": 1})).total
        if level >= Level.GUEST
        else None,
        can_add_project=level >= Level.DEVELOPER,
        can_add_group=level >= Level.MAINTAINER,
    )
