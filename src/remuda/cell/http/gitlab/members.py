"""Members of groups and projects in GitLab's form. Owners of a group and maintainers of a project change members up to
their own level. The last owner of a top-level group must stay. Members are users of the same organization. The
membership of a bot changes only with its access token."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from typing import Annotated

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request

from remuda.cell.core.access.rights import active_members
from remuda.cell.http.edge.access import in_group, in_project
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, bad_parameter, bad_request, forbidden, not_found
from remuda.cell.http.edge.lookup import group_in_path, number_in_path, project_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.views import UserShape, user_view
from remuda.cell.values.people import Level, Member, User
from remuda.lib.clock import rfc3339
from remuda.model.runner import Pool

LEVELS = frozenset(int(level) for level in Level)
_OF_GROUP, _OF_PROJECT = "/api/v4/groups/{id}/members", "/api/v4/projects/{id}/members"
routes = Routes()


class NewMember(msgspec.Struct, kw_only=True):
    access_level: int
    user_id: int | None = None
    username: str | None = None
    expires_at: str | None = None


class MemberChange(msgspec.Struct, kw_only=True):
    access_level: int
    expires_at: str | None = None


class MemberShape(UserShape, kw_only=True):
    """A user with their access level in a group or project."""

    access_level: int
    expires_at: str | None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A group or project, as far as its members matter."""

    owner: Pool
    organization_id: int
    above: tuple[Pool, ...]
    """The groups that contain the group or project. Their members are members here, too."""
    level: int
    """The level of the caller."""


async def place_in_path(edge: Edge, request: Request) -> Place:
    """The group or project in the path, with the caller's level in it."""
    caller = caller_of(request)
    if request.scope["path"].startswith("/api/v4/groups/"):
        group = await group_in_path(edge, request)
        return Place(
            owner=("group", group.id),
            organization_id=group.organization_id,
            above=tuple(("group", number) for number in group.above),
            level=caller.level_in_group(group) or 0,
        )
    project = await project_in_path(edge, request)
    return Place(
        owner=("project", project.id),
        organization_id=project.organization_id,
        above=tuple(("group", number) for number in project.group_ids),
        level=caller.level_in(project) or 0,
    )


def expiry_of(text: str | None, name: str = "expires_at") -> float | None:
    """Parse a date to the start of that day (UTC) in seconds since the epoch; None if it is missing or empty. Raises
    ApiError 400 about the parameter `name` if it is not a date."""
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text[:10]), time(), UTC).timestamp()
    except ValueError:
        raise bad_parameter(f"{name} is invalid: expected a date such as 2026-01-31") from None


def day_of(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)[:10]


def _view(edge: Edge, user: User, member: Member) -> MemberShape:
    view = replace(user_view(edge.settings.url, user), created_at=rfc3339(member.created_at))
    return MemberShape(**asdict(view), access_level=member.level, expires_at=day_of(member.expires_at))


async def _views(edge: Edge, members: Iterable[Member]) -> list[MemberShape]:
    users = [(await edge.store.people.load_user(member.user_id), member) for member in members]
    return [_view(edge, user, member) for user, member in users if user is not None]


async def _members(edge: Edge, owner: Pool) -> list[Member]:
    return active_members(await edge.store.people.list_members(owner), edge.clock.wall())


@routes.get(_OF_GROUP, in_group(Level.GUEST))
@routes.get(_OF_PROJECT, in_project(Level.GUEST))
async def list_direct(edge: Edge, place: Annotated[Place, place_in_path]) -> list[MemberShape]:
    """List the direct members of a group or project."""
    return await _views(edge, await _members(edge, place.owner))


@routes.get(f"{_OF_GROUP}/all", in_group(Level.GUEST))
@routes.get(f"{_OF_PROJECT}/all", in_project(Level.GUEST))
async def list_all(edge: Edge, place: Annotated[Place, place_in_path]) -> list[MemberShape]:
    """List all members of a group or project, also those of the groups above it, each with the highest level."""
    return await _views(edge, (await _load_all(edge, place)).values())


async def _load_all(edge: Edge, place: Place) -> dict[int, Member]:
    members: dict[int, Member] = {}
    for owner in (place.owner, *place.above):
        for member in await _members(edge, owner):
            if member.user_id not in members or members[member.user_id].level < member.level:
                members[member.user_id] = member
    return members


@routes.get("/api/v4/projects/{id}/users", in_project(Level.GUEST), query={"search": str})
async def list_users(edge: Edge, request: Request, place: Annotated[Place, place_in_path]) -> list[UserShape]:
    """List the users who are members of a project, directly or through a group."""
    users = [await edge.store.people.load_user(number) for number in await _load_all(edge, place)]
    search = request.query_params.get("search", "").casefold()
    url = edge.settings.url
    return [user_view(url, user) for user in users if user and search in f"{user.username}\n{user.name}".casefold()]


@routes.get(f"{_OF_GROUP}/{{user_id}}", in_group(Level.GUEST))
@routes.get(f"{_OF_PROJECT}/{{user_id}}", in_project(Level.GUEST))
async def show(edge: Edge, request: Request, place: Annotated[Place, place_in_path]) -> MemberShape:
    """Show a direct member of a group or project."""
    return (await _views(edge, [await _find_direct(edge, request, place)]))[0]


@routes.get(f"{_OF_GROUP}/all/{{user_id}}", in_group(Level.GUEST))
@routes.get(f"{_OF_PROJECT}/all/{{user_id}}", in_project(Level.GUEST))
async def show_any(edge: Edge, request: Request, place: Annotated[Place, place_in_path]) -> MemberShape:
    """Show a member of a group or project, direct or inherited from a group above it."""
    member = (await _load_all(edge, place)).get(number_in_path(request, "user_id"))
    if member is None:
        raise not_found("Member")
    return (await _views(edge, [member]))[0]


async def _find_direct(edge: Edge, request: Request, place: Place) -> Member:
    number = number_in_path(request, "user_id")
    for member in await _members(edge, place.owner):
        if member.user_id == number:
            return member
    raise not_found("Member")


async def _check_no_bot(edge: Edge, member: Member) -> None:
    """Raise ApiError 400 for the user of an access token: without its membership the token could not be listed or
    revoked any more."""
    user = await edge.store.people.load_user(member.user_id)
    if user is not None and user.bot_of == member.owner:
        raise bad_request(
            "this is the user of an access token; revoke the token (DELETE .../access_tokens/:token_id), or create one "
            "with another level"
        )


def _check_level(level: int, place: Place) -> None:
    if level not in LEVELS:
        raise bad_parameter("access_level does not have a valid value")
    if level > place.level:
        raise forbidden("you cannot give a higher level than your own")


@routes.post(_OF_GROUP, in_group(Level.OWNER), also=(409,))
@routes.post(_OF_PROJECT, in_project(Level.MAINTAINER), also=(409,))
async def add(edge: Edge, place: Annotated[Place, place_in_path], params: NewMember) -> MemberShape:
    """Add a member to a group or project."""
    _check_level(params.access_level, place)
    if (params.user_id is None) == (params.username is None):
        raise bad_parameter("user_id, username are missing, exactly one parameter must be provided")
    user = await (
        edge.store.people.find_user(params.username or "")
        if params.user_id is None
        else edge.store.people.load_user(params.user_id)
    )
    if user is None or user.organization_id != place.organization_id:
        raise not_found("User")
    if user.bot_of is not None:
        raise bad_request("the user of an access token is a member only where the token was created")
    if any(member.user_id == user.id for member in await _members(edge, place.owner)):
        raise ApiError(409, {"message": "Member already exists"})
    member = Member(
        owner=place.owner,
        user_id=user.id,
        level=params.access_level,
        created_at=edge.clock.wall(),
        expires_at=expiry_of(params.expires_at),
    )
    await edge.store.people.put_member(member)
    return _view(edge, user, member)


@routes.put(f"{_OF_GROUP}/{{user_id}}", in_group(Level.OWNER))
@routes.put(f"{_OF_PROJECT}/{{user_id}}", in_project(Level.MAINTAINER))
async def update(
    edge: Edge, request: Request, place: Annotated[Place, place_in_path], params: MemberChange
) -> MemberShape:
    """Change the level or the expiry of a member of a group or project."""
    member = await _find_direct(edge, request, place)
    await _check_no_bot(edge, member)
    _check_level(params.access_level, place)
    _check_level(member.level, place)
    if params.access_level < Level.OWNER:
        await _check_owners(edge, place, member)
    expires_at = member.expires_at if params.expires_at is None else expiry_of(params.expires_at)
    changed = replace(member, level=params.access_level, expires_at=expires_at)
    await edge.store.people.put_member(changed)
    return (await _views(edge, [changed]))[0]


@routes.delete(f"{_OF_GROUP}/{{user_id}}", in_group(Level.GUEST))
@routes.delete(f"{_OF_PROJECT}/{{user_id}}", in_project(Level.GUEST))
async def remove(edge: Edge, request: Request, caller: Caller, place: Annotated[Place, place_in_path]) -> None:
    """Remove a member from a group or project. Everybody may remove themselves."""
    member = await _find_direct(edge, request, place)
    if member.user_id != caller.user.id:
        if place.level < (Level.OWNER if place.owner[0] == "group" else Level.MAINTAINER):
            raise forbidden()
        _check_level(member.level, place)
    await _check_no_bot(edge, member)
    await _check_owners(edge, place, member)
    await edge.store.people.remove_member(place.owner, member.user_id)


async def _check_owners(edge: Edge, place: Place, member: Member) -> None:
    """Before removing or lowering a member: raise ApiError 403 if they are the only owner of a top-level group."""
    if member.level < Level.OWNER or place.owner[0] != "group" or place.above:
        return
    owners = [other for other in await _members(edge, place.owner) if other.level >= Level.OWNER]
    if len(owners) == 1:
        raise forbidden("a group needs an owner; make somebody else an owner first")
