"""Sessions of browsers: a cookie in the place of a token, for the web pages and for the calls that their scripts make.

The cookie is HttpOnly and SameSite=Lax; the store has only its SHA-256. A call that changes something must also have
the header X-CSRF-Token, which only a page of the cell can know. A token in a header goes before the cookie."""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from remuda.cell.errors import StoreError
from remuda.cell.http.edge.auth import MAX_TOKEN
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import forbidden, unauthorized
from remuda.cell.values import UserToken
from remuda.cell.values.sessions import WebSession
from remuda.wire.routable_token import token_hash

CSRF_HEADER = "x-csrf-token"
USED_EVERY_SECONDS = 600
"""`last_used_at` of a session is written at most this often."""


def cookie_name(url: str) -> str:
    """The name of the session cookie of a cell with this address. With HTTPS the prefix `__Host-` makes browsers accept
    it only from this host, encrypted, and for all paths."""
    return "__Host-remuda_session" if url.startswith("https:") else "remuda_session"


def session_secret_in(edge: Edge, headers: Mapping[str, str]) -> str | None:
    """The secret in the session cookie of a request; None if it has none."""
    name = cookie_name(edge.settings.url)
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name and value:
            return value
    return None


def csrf_token(secret: str) -> str:
    """The value of X-CSRF-Token for the session with this secret. It does not reveal the secret."""
    return hashlib.sha256(f"csrf {secret}".encode()).hexdigest()


def is_of_other_site(edge: Edge, headers: Mapping[str, str]) -> bool:
    """True if a page of another site has sent this request: browsers say so in Sec-Fetch-Site, which they send only
    over HTTPS and to this machine, or in Origin."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    # A proxy in front of the cell may put another name in Host.
    own = {headers.get("host", ""), urlsplit(edge.settings.url).netloc} - {""}
    return "origin" in headers and urlsplit(headers["origin"]).netloc not in own


def check_csrf(edge: Edge, headers: Mapping[str, str], secret: str) -> None:
    """Raise ApiError 403 if a page of another site has sent the request, or it lacks the right X-CSRF-Token for its
    session."""
    if is_of_other_site(edge, headers):
        raise forbidden("this call was sent by a page of another site")
    if not secrets.compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_token(secret).encode()):
        raise forbidden("the header X-CSRF-Token is missing or wrong; reload the page")


async def session_of(edge: Edge, secret: str) -> WebSession:
    """The session with this secret. Raises ApiError 401 if it is unknown, has ended or has expired."""
    session = await edge.store.sessions.find_session(token_hash(secret)) if len(secret) <= MAX_TOKEN else None
    now = edge.clock.wall()
    if session is None or session.expires_at <= now:
        raise unauthorized()
    if now - session.last_used_at >= USED_EVERY_SECONDS:
        with suppress(StoreError):  # a read-only store still answers
            await edge.store.sessions.note_use(session, now)
    return session


async def token_of_session(edge: Edge, session: WebSession) -> UserToken:
    """The personal token with which the session began, or one in its place (id 0) with the scope `api` if the user
    signed in without a token. Raises ApiError 401 if the token was revoked, has expired or was removed."""
    if not session.user_token_id:
        return UserToken(token_hash="", name="web session", user_id=session.user_id, last_used_at=session.last_used_at)
    token = await edge.store.people.load_user_token(session.user_token_id)
    if token is None or not token.is_valid(edge.clock.wall()):
        raise unauthorized()
    return token
