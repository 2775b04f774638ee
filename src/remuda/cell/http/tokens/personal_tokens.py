"""Personal access tokens in GitLab's form: list, create, rotate (which revokes the old token at once), revoke.

A token is shown once, when it is created; the store has only its SHA-256. People manage their own tokens,
administrators those of everybody. Invariant: a token without the scope `api` creates no token with scopes that
it lacks itself."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.rights import SCOPES, unknown_scopes
from remuda.cell.core.access.tokens import RANDOM_BYTES
from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import ADMINISTRATOR, USER
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.bodies import choice_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import (
    bad_field,
    bad_parameter,
    bad_request,
    forbidden,
    not_found,
)
from remuda.cell.http.edge.lookup import number_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.members import day_of, expiry_of
from remuda.cell.http.gitlab.views import time_text
from remuda.cell.values import UserToken
from remuda.cell.values.people import User
from remuda.lib.clock import rfc3339
from remuda.wire.routable_token import USER_PREFIX, encode, token_hash

MAX_NAME = 255
ROTATED_LIFE_SECONDS = 7 * 24 * 3600
"""Lifetime of a rotated token if the request gives none and the old token had an expiry, as in GitLab."""


_ROOT = "/api/v4/personal_access_tokens"
_ANY = USER.with_scopes(*SCOPES)
routes = Routes()


class NewToken(msgspec.Struct, kw_only=True):
    name: str
    scopes: list[str]
    description: str = ""
    expires_at: str | None = None


class Rotation(msgspec.Struct, kw_only=True):
    expires_at: str | None = None


class PersonalTokenShape(Shape, kw_only=True):
    id: int
    name: str
    description: str
    revoked: bool
    created_at: str
    scopes: list[str]
    user_id: int
    last_used_at: str | None
    active: bool
    expires_at: str | None
    token: str | UnsetType = UNSET


def new_user_token(cell_id: int, user: User) -> str:
    """Create the text of a new personal token: a random value, and the ids of its cell, organization and user. A user
    who is not stored yet (id 0) is left out."""
    routing = {"c": cell_id, "o": user.organization_id} | ({"u": user.id} if user.id else {})
    return encode(prefix=USER_PREFIX, routing=routing, random=secrets.token_bytes(RANDOM_BYTES))


def token_view(token: UserToken, now: float) -> PersonalTokenShape:
    is_active = not token.revoked and (token.expires_at is None or token.expires_at > now)
    return PersonalTokenShape.of(
        token,
        created_at=rfc3339(token.created_at),
        scopes=list(token.scopes),
        last_used_at=time_text(token.last_used_at),
        active=is_active,
        expires_at=day_of(token.expires_at),
    )


@routes.get(_ROOT, USER, query={"user_id": int, "state": Literal["active", "inactive"]})
async def list_all(edge: Edge, request: Request, caller: Caller) -> list[PersonalTokenShape]:
    """List the caller's personal tokens, or those of all users for administrators."""
    user, query = caller.user, request.query_params
    user_id = query.get("user_id", "")
    if user_id and not (user_id.isascii() and user_id.isdigit()):
        raise bad_parameter("user_id is invalid")
    owner = int(user_id[:18]) if user_id else (None if user.is_admin else user.id)
    if owner != user.id and not user.is_admin:
        raise forbidden()
    views = [token_view(token, edge.clock.wall()) for token in await edge.store.people.list_user_tokens_of(owner)]
    if state := choice_in_query(request, "state", ("active", "inactive")):
        views = [view for view in views if view.active is (state == "active")]
    return views


async def _find(edge: Edge, request: Request) -> UserToken:
    """The personal token whose id is in the path; `self` is the token that the caller uses, or with which the browser
    has signed in. Raises ApiError 404 if there is none, or if it belongs to another user and the caller is not an
    administrator."""
    caller = caller_of(request)
    if text_in_path(request, "token_id") == "self":
        if not caller.token.id:  # signed in without a token
            raise not_found("Personal Access Token")
        return caller.token
    token = await edge.store.people.load_user_token(number_in_path(request, "token_id"))
    if token is None or not (caller.user.is_admin or token.user_id == caller.user.id):
        raise not_found("Personal Access Token")
    return token


@routes.get(f"{_ROOT}/{{token_id}}", _ANY)
async def show(edge: Edge, caller: Caller, token: Annotated[UserToken, _find]) -> PersonalTokenShape:
    """Show a token."""
    mine = caller.token
    if mine.id != token.id and not {"api", "read_api"} & set(mine.scopes):
        raise forbidden("a token without the scope api or read_api can show only itself")
    return token_view(token, edge.clock.wall())


@routes.post("/api/v4/users/{id}/personal_access_tokens", ADMINISTRATOR)
async def create_for_user(edge: Edge, request: Request, caller: Caller, params: NewToken) -> PersonalTokenShape:
    """Create a token for a user."""
    user = await edge.store.people.load_user(number_in_path(request, "id"))
    if user is None:
        raise not_found("User")
    return await _create(edge, caller, user, params)


@routes.post("/api/v4/user/personal_access_tokens", USER)
async def create_own(edge: Edge, caller: Caller, params: NewToken) -> PersonalTokenShape:
    """Create a token for the caller."""
    return await _create(edge, caller, caller.user, params)


async def _create(edge: Edge, caller: Caller, user: User, params: NewToken) -> PersonalTokenShape:
    if user.bot_of is not None:
        raise forbidden("the user of an access token has no personal tokens")
    check_name_and_scopes(params.name, params.scopes, unknown=unknown_scopes(params.scopes, user))
    mine = caller.token.scopes
    if "api" not in mine and not set(params.scopes) <= set(mine):
        raise forbidden("a token cannot create one with scopes that it does not have itself")
    now = edge.clock.wall()
    text = new_user_token(edge.settings.cell_id, user)
    token = UserToken(
        token_hash=token_hash(text),
        name=params.name,
        description=params.description[:MAX_NAME],
        user_id=user.id,
        scopes=tuple(dict.fromkeys(params.scopes)),
        created_at=now,
        expires_at=check_future(expiry_of(params.expires_at), now),
    )
    added = await edge.store.people.add_user_token(token)
    return replace(token_view(added, now), token=text)


def check_name_and_scopes(name: str, scopes: Sequence[str], *, unknown: Sequence[str]) -> None:
    """Check name and scopes of a new token of any kind. `unknown`: those scopes that such a token cannot have. Raises
    ApiError 400."""
    if not name.strip() or len(name) > MAX_NAME:
        raise bad_field("name", f"must have 1 to {MAX_NAME} characters")
    if not scopes:
        raise bad_parameter("scopes is empty")
    if unknown:
        raise bad_parameter(f"scopes does not have a valid value: {unknown[0]}")


def check_future(expires_at: float | None, now: float) -> float | None:
    """Return the expiry of a new token. Raises ApiError 400 if it is in the past."""
    if expires_at is not None and expires_at <= now:
        raise bad_request("expires_at must be in the future")
    return expires_at


@routes.post(f"{_ROOT}/{{token_id}}/rotate", USER.with_scopes("self_rotate"), status=200)
async def rotate(edge: Edge, caller: Caller, old: Annotated[UserToken, _find], params: Rotation) -> PersonalTokenShape:
    """Replace a token by a new one with the same scopes."""
    user, now = await edge.store.people.load_user(old.user_id), edge.clock.wall()
    if user is None:
        raise not_found("User")
    mine = caller.token
    if mine.id != old.id and not {"api"} & set(mine.scopes):
        raise forbidden("a token without the scope api can rotate only itself")
    if user.bot_of is not None:
        raise bad_request("this is the access token of a project or group; rotate it there (access_tokens/self/rotate)")
    new, text = rotate_token(edge, old, user, params)
    try:
        added = await edge.store.people.add_user_token(new, instead_of=old.id)
    except ConflictError:
        raise bad_request("token already revoked") from None
    return replace(token_view(added, now), token=text)


def rotate_token(edge: Edge, old: UserToken, user: User, params: Rotation) -> tuple[UserToken, str]:
    """The successor of a token, not stored yet, and its text. Raises ApiError 400 for an expiry in the past."""
    now = edge.clock.wall()
    expires_at = check_future(expiry_of(params.expires_at), now)
    if expires_at is None and old.expires_at is not None:
        expires_at = now + ROTATED_LIFE_SECONDS
    text = new_user_token(edge.settings.cell_id, user)
    return (
        replace(old, token_hash=token_hash(text), created_at=now, expires_at=expires_at, last_used_at=None),
        text,
    )


async def revoke_token(edge: Edge, token: UserToken) -> None:
    """Revoke a token. If it is the access token of a project or group, block its bot, too."""
    await edge.store.people.change_user_token(token.id, lambda row: replace(row, revoked=True))
    user = await edge.store.people.load_user(token.user_id)
    if user is not None and user.bot_of is not None:
        others = await edge.store.people.list_user_tokens_of(user.id)
        if all(other.revoked for other in others):
            await edge.store.people.put_user(replace(user, state="blocked"))


@routes.delete(f"{_ROOT}/{{token_id}}", _ANY)
async def revoke(edge: Edge, caller: Caller, token: Annotated[UserToken, _find]) -> None:
    """Revoke a token."""
    mine = caller.token
    if mine.id != token.id and "api" not in mine.scopes:
        raise forbidden("a token without the scope api can revoke only itself")
    await revoke_token(edge, token)
