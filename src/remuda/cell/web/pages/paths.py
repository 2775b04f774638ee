"""Pages whose address is the path of a project, group, user or organization, and the page for addresses that do not
exist."""

from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remuda.cell.http.edge.errors import not_found
from remuda.cell.web.pages.projects import load_last_pipelines, show_project_home
from remuda.cell.web.places import page_number, segment
from remuda.cell.web.visit import Pages, Visit

pages = Pages()


PLACE = "/{path:path}"


@pages.get(PLACE, open_to_all=True)
async def show_place(visit: Visit) -> Response:
    if "text/html" not in visit.request.headers.get("accept", ""):
        raise HTTPException(404)
    if not (visit.is_signed_in or visit.edge.settings.web.public_projects):
        return visit.ask_to_sign_in()
    path = visit.text("path").rstrip("/")
    # A path that begins with a slash would become an address on another host: //host.
    if not path or path.startswith("/") or "/-/" in f"{path}/":
        raise not_found("Page")
    if quote(path) != visit.request.path_params["path"]:
        return visit.redirect(f"/{quote(path)}")
    if project := await visit.api.find(f"/api/v4/projects/{segment(path)}"):
        return await show_project_home(visit, project)
    if await visit.api.find(f"/api/v4/groups/{segment(path)}"):
        return visit.redirect(f"/groups/{quote(path)}")
    kind, _, name = path.partition("/")
    if kind == "o" and name:
        return await _show_organization(visit, name)
    return await _show_user(visit, path)


async def _show_user(visit: Visit, username: str) -> Response:
    users = await visit.api.get("/api/v4/users", username=username)
    if not users:
        raise not_found("Page")
    page = page_number(visit)
    # The search finds the paths that contain the name; those of the user begin with it.
    query = {"search": f"{username}/", "page": page, "per_page": 30}
    reply = await visit.api.call("GET", "/api/v4/projects", query)
    own = [project for project in reply.value if project["namespace"]["full_path"] == username]
    last = await load_last_pipelines(visit, own)
    return visit.render("user_home.html", person=users[0], projects=own, reply=reply, page=page, last=last)


async def _show_organization(visit: Visit, path: str) -> Response:
    organizations = await visit.api.get("/api/v4/organizations")
    organization = next((entry for entry in organizations if entry["path"] == path), None)
    if organization is None:
        raise not_found("Page")
    groups = await visit.api.get("/api/v4/groups", top_level_only=True, per_page=100)
    own = [group for group in groups if group["organization_id"] == organization["id"]]
    return visit.render("organization.html", organization=organization, groups=own)
