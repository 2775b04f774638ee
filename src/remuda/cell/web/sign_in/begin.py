"""Begins and ends sessions: the row in the store, and the cookie of the browser."""

import secrets

from starlette.responses import Response

from remuda.cell.core.access.rights import scopes_allow
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import forbidden
from remuda.cell.http.edge.sessions import cookie_name
from remuda.cell.values import UserToken
from remuda.cell.values.sessions import WebSession
from remuda.cell.web.visit import Visit
from remuda.wire.routable_token import token_hash

SESSION_SECONDS = 14 * 24 * 3600
_BROWSER_LENGTH = 300
_SECRET_BYTES = 32


async def begin_session(visit: Visit, *, user_id: int, user_token_id: int, method: str) -> str:
    """Store a new session of a user. Returns its secret for `set_cookie`."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    now = visit.edge.clock.wall()
    client = visit.request.client
    await visit.edge.store.sessions.add_session(
        WebSession(
            token_hash=token_hash(secret),
            user_id=user_id,
            method=method,
            user_token_id=user_token_id,
            created_at=now,
            expires_at=now + SESSION_SECONDS,
            last_used_at=now,
            address=client.host if client else "",
            browser=visit.request.headers.get("user-agent", "")[:_BROWSER_LENGTH],
        )
    )
    return secret


def set_cookie(edge: Edge, answer: Response, secret: str) -> None:
    """Set the session cookie in an answer; an empty `secret` removes it."""
    answer.set_cookie(
        cookie_name(edge.settings.url),
        secret,
        max_age=SESSION_SECONDS if secret else 0,
        path="/",
        secure=edge.settings.url.startswith("https:"),
        httponly=True,
        samesite="lax",
    )


def check_scopes(token: UserToken) -> None:
    """Raise ApiError 403 if a token may not read the API, so that pages would show nothing."""
    if not scopes_allow(token.scopes, is_reading=True):
        raise forbidden("this token cannot read the API; create one with the scope api or read_api")
