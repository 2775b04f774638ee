"""The queue: waiting and running jobs by what they require of a runner, and the runners that fit.
In its own module like every subject of pages."""

from starlette.responses import Response

from remuda.cell.web.visit import Pages, Visit

pages = Pages()


@pages.get("/queue")
async def show_queue(visit: Visit) -> Response:
    page = visit.page_number
    keys = await visit.api.call("GET", "/api/remuda/v1/queue", {"page": page, "per_page": 20, "jobs": 10})
    return visit.render("queue.html", keys=keys, page=page)
