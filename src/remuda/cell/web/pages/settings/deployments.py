"""Environments with their deployments, releases, and resource groups of a project."""

from typing import Any

from starlette.responses import RedirectResponse, Response

from remuda.cell.http.edge.errors import not_found
from remuda.cell.values.deployments import PROCESS_MODES
from remuda.cell.values.people import Level
from remuda.cell.web.pages.settings.frame import Place, Settings, render
from remuda.cell.web.places import page_number, segment
from remuda.cell.web.visit import Visit

pages = Settings()
_ON_A_PAGE = 20
_DEPLOYMENTS = 30
_STATES = ("available", "stopping", "stopped")


@pages.section("resource_groups")
async def show_resource_groups(visit: Visit, place: Place) -> Response:
    reply = await visit.api.call(
        "GET", f"{place.api}/resource_groups", {"page": page_number(visit), "per_page": _ON_A_PAGE}
    )
    details: dict[str, Any] = {}
    for group in reply.value:
        address = f"{place.api}/resource_groups/{segment(group['key'])}"
        details[group["key"]] = (
            await visit.api.find(f"{address}/current_job"),
            await visit.api.call("GET", f"{address}/upcoming_jobs", {"per_page": 5}),
        )
    return render(
        visit,
        place,
        "settings_resource_groups.html",
        "resource_groups",
        reply=reply,
        page=page_number(visit),
        details=details,
        modes=PROCESS_MODES,
        can_change=place.level >= Level.DEVELOPER,
    )


@pages.of_project("/-/environments")
async def show_environments(visit: Visit, place: Place) -> Response:
    page, state = page_number(visit), visit.query("state")
    query = {"page": page, "per_page": _ON_A_PAGE, "states": state if state in _STATES else ""}
    reply = await visit.api.call("GET", f"{place.api}/environments", query)
    environments = [await visit.api.get(f"{place.api}/environments/{entry['id']}") for entry in reply.value]
    return render(
        visit,
        place,
        "environments.html",
        reply=reply,
        page=page,
        environments=environments,
        state=state,
        states=_STATES,
        can_change=place.level >= Level.DEVELOPER and not place.values["archived"],
    )


@pages.of_project("/-/environments/{number}")
async def show_environment(visit: Visit, place: Place) -> Response:
    environment = await visit.api.get(f"{place.api}/environments/{segment(visit.text('number'))}")
    query = {
        "environment": environment["name"],
        "order_by": "id",
        "sort": "desc",
        "page": page_number(visit),
        "per_page": _DEPLOYMENTS,
    }
    reply = await visit.api.call("GET", f"{place.api}/deployments", query)
    return render(
        visit,
        place,
        "environment.html",
        environment=environment,
        reply=reply,
        page=page_number(visit),
        can_change=place.level >= Level.DEVELOPER and not place.values["archived"],
    )


@pages.of_project("/-/releases")
async def show_releases(visit: Visit, place: Place) -> Response:
    page = page_number(visit)
    reply = await visit.api.call("GET", f"{place.api}/releases", {"page": page, "per_page": _ON_A_PAGE})
    return render(
        visit,
        place,
        "releases.html",
        reply=reply,
        page=page,
        can_change=place.level >= Level.DEVELOPER and not place.values["archived"],
    )


@pages.of_project("/-/releases/{tag}/downloads/{file:path}")
async def open_release_file(visit: Visit, place: Place) -> Response:
    """Redirect to a linked file of a release: the address is its `direct_asset_url`."""
    release = await visit.api.get(f"{place.api}/releases/{segment(visit.text('tag'))}")
    for link in release["assets"]["links"]:
        is_wanted = link["direct_asset_url"].endswith(f"/downloads/{visit.text('file')}")
        if is_wanted and link["url"].startswith(("http://", "https://")):
            return RedirectResponse(link["url"], 302, headers={"Referrer-Policy": "no-referrer"})
    raise not_found("File")


@pages.of_project("/-/releases/{tag:path}")
async def show_release(visit: Visit, place: Place) -> Response:
    release = await visit.api.get(f"{place.api}/releases/{segment(visit.text('tag'))}")
    return render(
        visit,
        place,
        "release.html",
        release=release,
        can_change=place.level >= Level.DEVELOPER and not place.values["archived"],
    )
