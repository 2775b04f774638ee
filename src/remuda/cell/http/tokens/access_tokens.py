"""Access tokens of projects and groups in GitLab's form. Behind each token is a bot: a user without a namespace, whose
only membership is the project or group of the token. So the token works wherever a personal token does, with the rights
of that membership.

Maintainers manage the tokens of a project, owners those of a group, up to their own level. A bot creates no tokens.
Invariant: a revoked token blocks its bot, so that schedules of the bot start nothing. `Upkeep` removes bots whose token
has been unusable for a month."""

import secrets
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request

from remuda.cell.core.access.rights import RESOURCE_SCOPES
from remuda.cell.errors import ConflictError
from remuda.cell.http.edge.access import in_group, in_project
from remuda.cell.http.edge.admission import Caller
from remuda.cell.http.edge.bodies import choice_in_query
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, bad_parameter, bad_request, forbidden, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.members import LEVELS, Place, expiry_of, place_in_path
from remuda.cell.http.tokens.personal_tokens import (
    MAX_NAME,
    PersonalTokenShape,
    Rotation,
    check_future,
    check_name_and_scopes,
    new_user_token,
    revoke_token,
    rotate_token,
    token_view,
)
from remuda.cell.values import UserToken
from remuda.cell.values.people import Level, Member, User
from remuda.wire.routable_token import token_hash

LIFE_SECONDS = 365 * 24 * 3600
"""Lifetime of a token whose creator gives no expiry, as in GitLab."""
MAX_TOKENS = 500
"""How many bots a project or group can have."""

_OF_PROJECT, _OF_GROUP = "/api/v4/projects/{id}/access_tokens", "/api/v4/groups/{id}/access_tokens"
_MAINTAINER, _OWNER = in_project(Level.MAINTAINER), in_group(Level.OWNER)
_LISTED = {"state": Literal["active", "inactive"], "revoked": bool, "search": str}
routes = Routes()


class NewAccessToken(msgspec.Struct, kw_only=True):
    name: str
    scopes: list[str]
    access_level: int = Level.MAINTAINER
    expires_at: str | None = None
    description: str = ""


class AccessTokenShape(PersonalTokenShape, kw_only=True):
    access_level: int
    resource_type: str
    resource_id: int


class _BotToken(msgspec.Struct, frozen=True, kw_only=True):
    token: UserToken
    bot: User
    level: int


async def _list_bots(edge: Edge, place: Place) -> list[tuple[User, Member]]:
    rows = [
        (await edge.store.people.load_user(member.user_id), member)
        for member in await edge.store.people.list_members(place.owner)
    ]
    return [(user, member) for user, member in rows if user is not None and user.bot_of == place.owner]


async def _list_tokens(edge: Edge, place: Place) -> list[_BotToken]:
    return [
        _BotToken(token=token, bot=bot, level=member.level)
        for bot, member in await _list_bots(edge, place)
        for token in await edge.store.people.list_user_tokens_of(bot.id)
    ]


def _view(row: _BotToken, place: Place, now: float, token: UserToken | None = None) -> AccessTokenShape:
    return AccessTokenShape(
        **asdict(token_view(token or row.token, now)),
        access_level=row.level,
        resource_type=place.owner[0],
        resource_id=place.owner[1],
    )


async def _find(edge: Edge, request: Request) -> _BotToken:
    place, number = await place_in_path(edge, request), number_in_path(request, "token_id")
    for row in await _list_tokens(edge, place):
        if row.token.id == number:
            return row
    raise not_found("Access Token")


@routes.get(_OF_GROUP, _OWNER, query=_LISTED)
@routes.get(_OF_PROJECT, _MAINTAINER, query=_LISTED)
async def list_all(edge: Edge, request: Request, place: Annotated[Place, place_in_path]) -> list[AccessTokenShape]:
    """List the access tokens of a project or group, without their secrets."""
    query, now = request.query_params, edge.clock.wall()
    views: Iterable[AccessTokenShape] = [_view(row, place, now) for row in await _list_tokens(edge, place)]
    if state := choice_in_query(request, "state", ("active", "inactive")):
        views = [view for view in views if view.active is (state == "active")]
    if revoked := choice_in_query(request, "revoked", ("true", "false")):
        views = [view for view in views if view.revoked is (revoked == "true")]
    search = query.get("search", "").casefold()
    return sorted((view for view in views if search in view.name.casefold()), key=lambda view: view.id)


@routes.post(_OF_GROUP, _OWNER)
@routes.post(_OF_PROJECT, _MAINTAINER)
async def create(
    edge: Edge, caller: Caller, place: Annotated[Place, place_in_path], params: NewAccessToken
) -> AccessTokenShape:
    """Create an access token for a project or group, and the bot that it acts as. The token is shown only here."""
    _check_new(caller, place, params)
    if len(await _list_bots(edge, place)) >= MAX_TOKENS:
        raise bad_request(f"there are {MAX_TOKENS} access tokens already; revoke those that nobody uses")
    now = edge.clock.wall()
    expires_at = check_future(expiry_of(params.expires_at), now) or now + LIFE_SECONDS
    kind, number = place.owner
    username = f"{kind}_{number}_bot_{secrets.token_hex(16)}"
    bot = User(
        id=0,
        username=username,
        name=params.name,
        email=f"{username}@noreply.invalid",
        created_at=now,
        organization_id=place.organization_id,
        bot_of=place.owner,
    )
    member = Member(owner=place.owner, user_id=0, level=params.access_level, created_at=now, expires_at=expires_at)
    text = new_user_token(edge.settings.cell_id, bot)
    token = UserToken(
        token_hash=token_hash(text),
        name=params.name,
        description=params.description[:MAX_NAME],
        scopes=tuple(dict.fromkeys(params.scopes)),
        created_at=now,
        expires_at=expires_at,
    )
    bot, added = await edge.store.people.add_bot(bot, member, token)
    return replace(_view(_BotToken(token=added, bot=bot, level=member.level), place, now), token=text)


def _check_new(caller: Caller, place: Place, params: NewAccessToken) -> None:
    if caller.user.bot_of is not None:
        raise forbidden("an access token cannot create other tokens")
    unknown = [scope for scope in params.scopes if scope not in RESOURCE_SCOPES]
    check_name_and_scopes(params.name, params.scopes, unknown=unknown)
    if params.access_level not in LEVELS:
        raise bad_parameter("access_level does not have a valid value")
    if params.access_level > place.level:
        raise forbidden("you cannot give a higher level than your own")


@routes.get(f"{_OF_GROUP}/{{token_id}}", _OWNER)
@routes.get(f"{_OF_PROJECT}/{{token_id}}", _MAINTAINER)
async def show(
    edge: Edge, place: Annotated[Place, place_in_path], row: Annotated[_BotToken, _find]
) -> AccessTokenShape:
    """Show an access token of a project or group, without its secret."""
    return _view(row, place, edge.clock.wall())


@routes.post(f"{_OF_GROUP}/self/rotate", in_group(Level.GUEST).with_scopes("self_rotate"), status=200, also=(405,))
@routes.post(f"{_OF_PROJECT}/self/rotate", in_project(Level.GUEST).with_scopes("self_rotate"), status=200, also=(405,))
async def rotate_self(
    edge: Edge, caller: Caller, place: Annotated[Place, place_in_path], params: Rotation
) -> AccessTokenShape:
    """Replace the access token with which the caller calls. 405 if it is not one of this project or group."""
    for row in await _list_tokens(edge, place):
        if row.token.id == caller.token.id:
            return await _rotate(edge, place, row, params)
    raise ApiError(405, {"message": "405 Method Not Allowed"})


@routes.post(f"{_OF_GROUP}/{{token_id}}/rotate", _OWNER, status=200)
@routes.post(f"{_OF_PROJECT}/{{token_id}}/rotate", _MAINTAINER, status=200)
async def rotate(
    edge: Edge,
    caller: Caller,
    place: Annotated[Place, place_in_path],
    row: Annotated[_BotToken, _find],
    params: Rotation,
) -> AccessTokenShape:
    """Replace an access token by a new one with the same scopes and bot."""
    if caller.user.bot_of is not None and caller.user.id != row.bot.id:
        raise forbidden("an access token can rotate only itself")
    if row.level > place.level:
        raise forbidden("the token has a higher level than you")
    return await _rotate(edge, place, row, params)


async def _rotate(edge: Edge, place: Place, row: _BotToken, params: Rotation) -> AccessTokenShape:
    now = edge.clock.wall()
    new, text = rotate_token(edge, row.token, row.bot, params)
    # First the membership: a death before the next line leaves the old token valid.
    for _, member in [entry for entry in await _list_bots(edge, place) if entry[0].id == row.bot.id]:
        await edge.store.people.put_member(replace(member, expires_at=new.expires_at))
    try:
        added = await edge.store.people.add_user_token(new, instead_of=row.token.id)
    except ConflictError:
        raise bad_request("token already revoked") from None
    return replace(_view(row, place, now, added), token=text)


@routes.delete(f"{_OF_GROUP}/{{token_id}}", _OWNER)
@routes.delete(f"{_OF_PROJECT}/{{token_id}}", _MAINTAINER)
async def revoke(edge: Edge, caller: Caller, row: Annotated[_BotToken, _find]) -> None:
    """Revoke an access token and block its bot."""
    if caller.user.bot_of is not None and caller.user.id != row.bot.id:
        raise forbidden("an access token can revoke only itself")
    await revoke_token(edge, row.token)
