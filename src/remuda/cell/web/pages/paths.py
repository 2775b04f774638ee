"""Pages whose address is the path of a project, group or user, and the page for addresses that do not exist."""

from starlette.exceptions import HTTPException
from starlette.responses import Response

from remuda.cell.http.edge.errors import not_found
from remuda.cell.web.visit import Pages, Visit

pages = Pages()


PLACE = "/{path:path}"


@pages.get(PLACE, open_to_all=True)
async def show_place(visit: Visit) -> Response:
    if "text/html" not in visit.request.headers.get("accept", ""):
        raise HTTPException(404)
    if not (visit.is_signed_in or visit.edge.settings.web.public_projects):
        return visit.ask_to_sign_in()
    raise not_found("Page")
