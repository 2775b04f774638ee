"""General settings of a project or group, its step policy, and the way to the first section that a user may open."""

import json

from starlette.responses import Response

from remuda.cell.http.edge.errors import forbidden
from remuda.cell.values.people import Level
from remuda.cell.web.pages.settings.frame import Place, Settings, list_sections, load_place, render
from remuda.cell.web.visit import Visit

pages = Settings()
_BRANCHES = 100


@pages.get("/{project:path}/-/settings")
@pages.get("/groups/{group:path}/-/settings")
async def open_first(visit: Visit) -> Response:
    """Redirect to the first section that the user may open."""
    place = await load_place(visit)
    sections = list_sections(place)
    if not sections:
        raise forbidden("the settings are for members")
    return visit.redirect(f"{place.address}/-/settings/{sections[0].name}")


@pages.section("general")
async def show_general(visit: Visit, place: Place) -> Response:
    branches = []
    if place.kind == "project" and not place.values.get("empty_repo"):
        branches = await visit.api.get(f"{place.api}/repository/branches", per_page=_BRANCHES)
    return render(
        visit,
        place,
        f"settings_general_{place.kind}.html",
        "general",
        branches=[branch["name"] for branch in branches],
        is_owner=place.level >= Level.OWNER,
    )


@pages.section("policy")
async def show_policy(visit: Visit, place: Place) -> Response:
    address = f"/api/remuda/v1/policies/{place.kind}/{place.values['id']}"
    policy = await visit.api.get(address)
    text = json.dumps(policy["document"], indent=2, ensure_ascii=False)
    return render(visit, place, "settings_policy.html", "policy", policy=policy, text=text, policy_address=address)
