"""The first page: what runs and waits now, recent pipelines, runners with problems, demand against capacity.
In its own module like every subject of pages."""

from starlette.responses import Response

from remuda.cell.web.usage_chart import draw_chart
from remuda.cell.web.visit import Pages, Visit

pages = Pages()

_SHOWN = 8
_WAITING = ("pending", "waiting_for_resource", "preparing")


@pages.get("/")
async def show_overview(visit: Visit) -> Response:
    api, is_admin = visit.api, visit.caller.user.is_admin
    running = await api.call("GET", "/api/remuda/v1/jobs", {"scope": ["running", "canceling"], "per_page": _SHOWN})
    waiting = await api.call(
        "GET", "/api/remuda/v1/jobs", {"scope": list(_WAITING), "per_page": _SHOWN, "sort": "asc", "order_by": "id"}
    )
    usage = await api.get("/api/remuda/v1/usage") if is_admin else None
    projects = await api.call("GET", "/api/v4/projects", {"per_page": 1, "membership": not is_admin or None})
    runners = await api.call("GET", "/api/v4/runners", {"per_page": 1})
    return visit.render(
        "overview.html",
        running=running,
        waiting=waiting,
        pipelines=await api.get("/api/remuda/v1/pipelines", per_page=_SHOWN),
        problems=await api.get("/api/remuda/v1/runner_problems"),
        usage=usage,
        chart=draw_chart(usage["points"], usage["interval_seconds"]) if usage else None,
        disk=usage["disk"] if usage else None,
        project_count=projects.total,
        runner_count=runners.total,
    )
