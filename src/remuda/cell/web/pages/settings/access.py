"""Settings about access: members, protected branches and tags, whose job tokens a project admits, and tokens. A token
is shown once, by a script, when it has been created."""

from starlette.responses import Response

from remuda.cell.core.access.deploy_tokens import SCOPES as DEPLOY_SCOPES
from remuda.cell.core.access.rights import RESOURCE_SCOPES
from remuda.cell.http.git.protected_branches import LEVELS as REF_LEVELS
from remuda.cell.values.people import Level
from remuda.cell.web.pages.settings.frame import Place, Settings, render
from remuda.cell.web.places import page_number
from remuda.cell.web.visit import Visit

pages = Settings()
_MEMBERS = 50
_SUGGESTED = 100


@pages.section("members")
async def show_members(visit: Visit, place: Place) -> Response:
    page = page_number(visit)
    members = await visit.api.call("GET", f"{place.api}/members/all", {"page": page, "per_page": _MEMBERS})
    direct = {member["id"]: member for member in await visit.api.get_all(f"{place.api}/members")}
    can_change = place.level >= (Level.OWNER if place.kind == "group" else Level.MAINTAINER)
    return render(
        visit,
        place,
        "settings_members.html",
        "members",
        members=members,
        page=page,
        direct=direct,
        can_change=can_change,
    )


@pages.section("job_tokens")
async def show_job_tokens(visit: Visit, place: Place) -> Response:
    scope = f"{place.api}/job_token_scope"
    return render(
        visit,
        place,
        "settings_job_tokens.html",
        "job_tokens",
        scope=await visit.api.get(scope),
        projects=await visit.api.get_all(f"{scope}/allowlist"),
        groups=await visit.api.get_all(f"{scope}/groups_allowlist"),
    )


@pages.section("protected_refs")
async def show_protected_refs(visit: Visit, place: Place) -> Response:
    names = []
    if not place.values.get("empty_repo"):
        names = [row["name"] for row in await visit.api.get(f"{place.api}/repository/branches", per_page=_SUGGESTED)]
    return render(
        visit,
        place,
        "settings_protected_refs.html",
        "protected_refs",
        branches=await visit.api.get_all(f"{place.api}/protected_branches"),
        tags=await visit.api.get_all(f"{place.api}/protected_tags"),
        ref_levels=REF_LEVELS,
        names=names,
    )


@pages.section("triggers")
async def show_triggers(visit: Visit, place: Place) -> Response:
    triggers = await visit.api.get_all(f"{place.api}/triggers")
    return render(visit, place, "settings_triggers.html", "triggers", triggers=triggers)


@pages.section("access_tokens")
async def show_access_tokens(visit: Visit, place: Place) -> Response:
    tokens = await visit.api.get_all(f"{place.api}/access_tokens")
    return render(
        visit,
        place,
        "settings_access_tokens.html",
        "access_tokens",
        tokens=sorted(tokens, key=lambda token: not token["active"]),
        scopes=RESOURCE_SCOPES,
    )


@pages.section("deploy_tokens")
async def show_deploy_tokens(visit: Visit, place: Place) -> Response:
    tokens = await visit.api.get_all(f"{place.api}/deploy_tokens")
    return render(
        visit,
        place,
        "settings_deploy_tokens.html",
        "deploy_tokens",
        tokens=tokens,
        scopes=DEPLOY_SCOPES,
        can_change=place.kind == "project" or place.level >= Level.OWNER,
    )
