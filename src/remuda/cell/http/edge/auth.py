"""Who asks: a user, a runner or a job, by the token they show.

Decided here: where each kind of token may stand (runner-api contract: the body is authoritative for runners, a
parameter wins over the header for jobs) and what a wrong one is answered. Tokens are compared as SHA-256 hashes, so
neither the store nor the time an answer takes tells anything about a near miss.

Invariant: a wrong token changes nothing. A store that cannot be asked is not a wrong token: StoreError goes through.
"""

import base64
import binascii
from collections.abc import Mapping

from starlette.requests import Request

from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, forbidden, unauthorized
from remuda.cell.values import Job, Runner, UserToken
from remuda.wire.routable_token import token_hash

_MAX_TOKEN = 8192


def user_token_in(headers: Mapping[str, str]) -> str | None:
    """A user's token, if one is shown."""
    shown = headers.get("private-token")
    if shown is None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        shown = credentials.strip() if scheme.lower() == "bearer" else None
    return shown or None


def basic_in(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Name and password of HTTP Basic, if shown."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if colon else None


async def user_of(edge: Edge, token: str | None) -> UserToken:
    """The user with this token; 401 when there is none."""
    if not token or len(token) > _MAX_TOKEN:
        raise unauthorized()
    found = await edge.store.people.find_user_token(token_hash(token))
    if found is None or found.revoked or (found.expires_at is not None and found.expires_at <= edge.clock.wall()):
        raise unauthorized()
    return found


async def runner_of(edge: Edge, token: str) -> Runner:
    """The runner with this token; 403 when the cell knows for sure that there is none."""
    if not token:
        raise bad_parameter("token is missing")
    found = await edge.store.runners.find_runner(token_hash(token)) if len(token) <= _MAX_TOKEN else None
    if found is None or (found.token_expires_at is not None and found.token_expires_at <= edge.clock.wall()):
        raise forbidden()
    return found


def job_token_in(request: Request) -> str:
    """A job's token: a parameter wins over the header."""
    asked = request.query_params.get("token") if request.scope["query_string"] else None
    return asked or request.headers.get("job-token") or ""


async def job_of(edge: Edge, token: str, job_id: int | None = None, *, scope: str = "job") -> Job:
    """The job with this token, acknowledged by this very call; 403 when the token does not open it (any more), or not
    for this purpose."""
    if not token or len(token) > _MAX_TOKEN:
        raise forbidden()
    calls = edge.dispatch.runner_calls
    return await calls.touch(await calls.authenticate(token, job_id, scope=scope))
