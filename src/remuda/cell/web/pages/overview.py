"""The first page: what runs and waits now, recent pipelines, runners."""

from starlette.responses import Response

from remuda.cell.web.visit import Pages, Visit

pages = Pages()


@pages.get("/")
async def show_overview(visit: Visit) -> Response:
    running = await visit.api.call("GET", "/api/remuda/v1/jobs", {"scope[]": "running", "per_page": 10})
    return visit.render("overview.html", running=running)
