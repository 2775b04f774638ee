"""The page of one's own account: the browsers in which one is signed in, and personal access tokens."""

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from remuda.cell.web.browsers import describe_browser
from remuda.cell.web.visit import Pages, Visit

SUGGESTED_DAYS = 90
"""How long a new token is valid if nobody chooses another day."""
SCOPES = {
    "api": "read and change everything that you may: projects, pipelines, runners, settings",
    "read_api": "read everything that you may read, and change nothing",
    "read_repository": "clone and fetch with git",
    "write_repository": "clone, fetch and push with git",
    "read_registry": "pull images from the container registry",
    "write_registry": "push images to the container registry",
    "create_runner": "create runners",
    "manage_runner": "change and remove runners that you may manage",
    "read_user": "read your own account",
    "self_rotate": "replace this token by a new one",
}
METHODS = {"token": "token", "link": "sign-in link", "oidc": "single sign-on"}
pages = Pages()


@pages.get("/-/profile")
async def show_profile(visit: Visit) -> Response:
    caller = visit.caller
    sessions = await visit.api.get("/api/remuda/v1/sessions")
    tokens = await visit.api.get("/api/v4/personal_access_tokens", user_id=caller.user.id, state="active", per_page=100)
    today = datetime.fromtimestamp(visit.edge.clock.wall(), UTC).date()
    return visit.render(
        "profile.html",
        sessions=sessions,
        tokens=sorted(tokens, key=lambda token: -token["id"]),
        scopes=SCOPES,
        methods=METHODS,
        describe_browser=describe_browser,
        may_change="api" in caller.token.scopes,
        may_create="api" in caller.token.scopes and caller.user.bot_of is None,
        signed_in_with=caller.token.id,
        tomorrow=str(today + timedelta(days=1)),
        suggested=str(today + timedelta(days=SUGGESTED_DAYS)),
    )
