"""Begins and ends sessions: the row in the store, and the cookie of the browser."""

import secrets

from starlette.responses import Response

from remuda.cell.core.access.rights import scopes_allow
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import forbidden
from remuda.cell.http.edge.sessions import cookie_name
from remuda.cell.values import UserToken
from remuda.cell.values.people import User
from remuda.cell.values.sessions import WebSession
from remuda.cell.web.sign_in import auditing
from remuda.cell.web.visit import Visit
from remuda.wire.routable_token import token_hash

_BROWSER_LENGTH = 300
_SECRET_BYTES = 32


async def begin_session(visit: Visit, user: User, *, method: str, user_token_id: int = 0) -> str:
    """Store a new session of a user, and that they signed in. Returns its secret for `set_cookie`."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    now = visit.edge.clock.wall()
    client = visit.request.client
    session = await visit.edge.store.sessions.add_session(
        WebSession(
            token_hash=token_hash(secret),
            user_id=user.id,
            method=method,
            user_token_id=user_token_id,
            created_at=now,
            expires_at=now + visit.edge.settings.web.session_seconds,
            last_used_at=now,
            address=client.host if client else "",
            browser=visit.request.headers.get("user-agent", "")[:_BROWSER_LENGTH],
        )
    )
    await auditing.record(visit, auditing.SIGNED_IN, user, token_id=user_token_id, method=method, session_id=session.id)
    return secret


def set_cookie(edge: Edge, answer: Response, secret: str) -> None:
    """Set the session cookie in an answer; an empty `secret` removes it."""
    put_cookie(edge, answer, cookie_name(edge.settings.url), secret, int(edge.settings.web.session_seconds))


def put_cookie(edge: Edge, answer: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send with their requests; an empty `value` removes
    it."""
    answer.set_cookie(
        name,
        value,
        max_age=seconds if value else 0,
        path="/",
        secure=edge.settings.url.startswith("https:"),
        httponly=True,
        samesite="lax",
    )


def check_scopes(token: UserToken) -> None:
    """Raise ApiError 403 if a token may not read the API, so that pages would show nothing."""
    if not scopes_allow(token.scopes, is_reading=True):
        raise forbidden("this token cannot read the API; create one with the scope api or read_api")
