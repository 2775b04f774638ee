"""Authentication: finds the user, runner or job of the token in a request.

Tokens of users and runners are looked up by their SHA-256 hash, so the response time does not reveal how much of a
guessed token is right. If the store is unavailable, these functions raise StoreError, never 401 or 403."""

import base64
import binascii
from collections.abc import Mapping

from starlette.requests import Request

from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import bad_parameter, forbidden, unauthorized
from remuda.cell.values import Job, Runner, UserToken
from remuda.cell.values.hooks import DeployToken
from remuda.wire.routable_token import token_hash

MAX_TOKEN = 8192
"""No token is longer; a longer text is refused without a look into the store."""


def user_token_in(headers: Mapping[str, str]) -> str | None:
    """The user token in the header PRIVATE-TOKEN or `Authorization: Bearer`; None if the request has neither."""
    token = headers.get("private-token")
    if token is None:
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        token = credentials.strip() if scheme.lower() == "bearer" else None
    return token or None


def basic_in(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """User name and password of HTTP Basic authentication; None if they are missing or malformed."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return (name, password) if colon else None


async def user_of(edge: Edge, token: str | None) -> UserToken:
    """The stored user token with this text. Raises ApiError 401 if it is missing, unknown, revoked or expired."""
    if not token or len(token) > MAX_TOKEN:
        raise unauthorized()
    user_token = await edge.store.people.find_user_token(token_hash(token))
    if user_token is None or not user_token.is_valid(edge.clock.wall()):
        raise unauthorized()
    return user_token


async def deploy_token_of(edge: Edge, username: str, token: str) -> DeployToken | None:
    """The deploy token with this text and user name; None if it is unknown, removed or expired."""
    deploy_token = await edge.store.hooks.find_deploy_token(token_hash(token)) if len(token) <= MAX_TOKEN else None
    if deploy_token is None or deploy_token.username != username or not deploy_token.is_active(edge.clock.wall()):
        return None
    return deploy_token


async def runner_of(edge: Edge, token: str) -> Runner:
    """The runner with this token. Raises ApiError: 400 for an empty token, 403 for an unknown or expired one. If the
    store is unavailable, it raises StoreError and not 403, because a runner that gets 403 stops asking for jobs."""
    if not token:
        raise bad_parameter("token is missing")
    runner = await edge.store.runners.find_runner(token_hash(token)) if len(token) <= MAX_TOKEN else None
    if runner is None or (runner.token_expires_at is not None and runner.token_expires_at <= edge.clock.wall()):
        raise forbidden()
    return runner


def runner_token_in(request: Request) -> str:
    """The runner or registration token in the header RUNNER-TOKEN; empty if the request has none."""
    return request.headers.get("runner-token", "")


def job_token_in(request: Request) -> str:
    """The job token in the query parameter `token`, else in the header JOB-TOKEN; empty if the request has neither."""
    parameter = request.query_params.get("token") if request.scope["query_string"] else None
    return parameter or request.headers.get("job-token") or ""


async def job_of(edge: Edge, token: str, job_id: int | None = None, *, scope: str = "job") -> Job:
    """The job with this token; its runner counts as alive, a handed-out job becomes running. Raises ForbiddenError or
    ApiError (both 403) if the token is not valid, lacks `scope` or is not of `job_id`, or no runner has the job now."""
    if not token or len(token) > MAX_TOKEN:
        raise forbidden()
    calls = edge.dispatch.runner_calls
    return await calls.touch(await calls.authenticate(token, job_id, scope=scope))
