"""Settings about pipelines: variables and schedules. Values of variables are not part of a page: a script reads one
when it is asked for."""

from starlette.responses import Response

from remuda.cell.values.people import Level
from remuda.cell.web.pages.settings.frame import Place, Settings, render
from remuda.cell.web.places import segment
from remuda.cell.web.visit import Visit

pages = Settings()
_PIPELINES = 20


@pages.section("variables")
async def show_variables(visit: Visit, place: Place) -> Response:
    variables = await visit.api.get_all(f"{place.api}/variables")
    shown = [{name: value for name, value in variable.items() if name != "value"} for variable in variables]
    return render(visit, place, "settings_variables.html", "variables", variables=shown)


@pages.section("schedules")
async def show_schedules(visit: Visit, place: Place) -> Response:
    schedules = await visit.api.get_all(f"{place.api}/pipeline_schedules")
    return render(visit, place, "settings_schedules.html", "schedules", schedules=schedules)


@pages.section("schedules", "/{schedule_id}")
async def show_schedule(visit: Visit, place: Place) -> Response:
    address = f"{place.api}/pipeline_schedules/{segment(visit.text('schedule_id'))}"
    schedule, user = await visit.api.get(address), visit.caller.user
    is_owner = bool(schedule["owner"]) and schedule["owner"]["id"] == user.id
    # The list begins with the oldest.
    last = await visit.api.call("GET", f"{address}/pipelines", {"per_page": _PIPELINES})
    if (pages_of_list := -(-last.total // _PIPELINES)) > 1:
        last = await visit.api.call("GET", f"{address}/pipelines", {"per_page": _PIPELINES, "page": pages_of_list})
    return render(
        visit,
        place,
        "settings_schedule.html",
        "schedules",
        schedule=schedule,
        schedule_api=address,
        pipelines=last.value[::-1],
        can_change=is_owner or user.is_admin,
        can_see=is_owner or place.level >= Level.MAINTAINER,
        can_take=not is_owner and place.level >= Level.MAINTAINER,
    )
