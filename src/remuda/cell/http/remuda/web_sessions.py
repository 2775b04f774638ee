"""Sessions of browsers: list and end them, and create a link that signs in once (`remuda up` prints one)."""

import secrets

from starlette.requests import Request

from remuda.cell.http.edge.access import USER
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.auditing import add_audit_details
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.values.sessions import SignInLink
from remuda.lib.clock import rfc3339
from remuda.wire.routable_token import token_hash

LINK_SECONDS = 15 * 60
"""How long a link is valid."""
LINK_PATH = "/-/sign-in/link"
_SECRET_BYTES = 32
_ROOT = "/api/remuda/v1/sessions"
routes = Routes()


class SignInLinkShape(Shape, kw_only=True):
    url: str
    expires_at: str


class WebSessionShape(Shape, kw_only=True):
    id: int
    method: str
    address: str
    browser: str
    created_at: str
    last_used_at: str
    expires_at: str
    current: bool
    """Whether the request comes from this session."""


@routes.post("/api/remuda/v1/sign_in_links", USER)
async def create_link(edge: Edge, request: Request, caller: Caller) -> SignInLinkShape:
    """Create a link that signs the caller in to the web pages, once and within 15 minutes."""
    if not edge.settings.web.enabled:
        raise ApiError(404, {"message": "404 this cell serves no web pages (web.enabled is false)"})
    code = secrets.token_urlsafe(_SECRET_BYTES)
    now = edge.clock.wall()
    link = SignInLink(
        code_hash=token_hash(code),
        user_id=caller.user.id,
        user_token_id=caller.token.id,
        created_at=now,
        expires_at=now + LINK_SECONDS,
    )
    await edge.store.sessions.add_link(link)
    add_audit_details(request, id=caller.user.id, username=caller.user.username)
    return SignInLinkShape(url=f"{edge.settings.url}{LINK_PATH}?code={code}", expires_at=rfc3339(link.expires_at))


@routes.get(_ROOT, USER)
async def list_sessions(edge: Edge, caller: Caller) -> list[WebSessionShape]:
    """List the browsers in which the caller is signed in, the newest first."""
    now = edge.clock.wall()
    return [
        WebSessionShape.of(
            session,
            created_at=rfc3339(session.created_at),
            last_used_at=rfc3339(session.last_used_at),
            expires_at=rfc3339(session.expires_at),
            current=session.id == caller.session_id,
        )
        for session in await edge.store.sessions.list_sessions(caller.user.id)
        if session.expires_at > now
    ]


@routes.delete(_ROOT, USER)
async def end_other_sessions(edge: Edge, request: Request, caller: Caller) -> None:
    """End all sessions of the caller except the one that the request comes from, and all sign-in links."""
    ended = await edge.store.sessions.remove_sessions_of(caller.user.id, but=caller.session_id)
    add_audit_details(request, id=caller.user.id, username=caller.user.username, sessions=ended)


@routes.delete(f"{_ROOT}/{{session_id}}", USER)
async def end_session(edge: Edge, request: Request, caller: Caller) -> None:
    """End a session of the caller: its browser must sign in again."""
    session = await edge.store.sessions.load_session(number_in_path(request, "session_id"))
    if session is None or session.user_id != caller.user.id:
        raise not_found("Session")
    await edge.store.sessions.remove_session(session.id)
    add_audit_details(request, id=caller.user.id, username=caller.user.username)
