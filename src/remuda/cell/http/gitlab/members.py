"""Members of groups and projects in GitLab's form.

Owners of a group and maintainers of a project change members, up to their own level. A group keeps its last owner.
Members belong to the same organization.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.core.access.rights import active_members
from remuda.cell.http.edge.access import in_group, in_project
from remuda.cell.http.edge.admission import caller_of
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import ApiError, bad_parameter, forbidden, json_answer, no_content, not_found
from remuda.cell.http.edge.lookup import group_in_path, number_in_path, project_in_path
from remuda.cell.http.edge.paging import slice_answer
from remuda.cell.http.gitlab.views import UserShape, user_view
from remuda.cell.values.people import Level, Member, User
from remuda.lib.clock import rfc3339
from remuda.model.runner import Pool

_LEVELS = frozenset(int(level) for level in Level)


class NewMember(msgspec.Struct, kw_only=True):
    access_level: int
    user_id: int | None = None
    username: str | None = None
    expires_at: str | None = None


class MemberChange(msgspec.Struct, kw_only=True):
    access_level: int
    expires_at: str | None = None


class MemberShape(UserShape, kw_only=True):
    """A user with the level in a group or project."""

    access_level: int
    expires_at: str | None


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The group or project in the path."""

    owner: Pool
    organization_id: int
    above: tuple[Pool, ...]
    """The groups that contain it. Their members are members here, too."""
    level: int
    """The level of the caller."""


async def _place(edge: Edge, request: Request) -> _Place:
    caller = caller_of(request)
    if request.scope["path"].startswith("/api/v4/groups/"):
        group = await group_in_path(edge, request)
        return _Place(
            owner=("group", group.id),
            organization_id=group.organization_id,
            above=tuple(("group", number) for number in group.above),
            level=caller.level_in_group(group) or 0,
        )
    project = await project_in_path(edge, request)
    return _Place(
        owner=("project", project.id),
        organization_id=project.organization_id,
        above=tuple(("group", number) for number in project.group_ids),
        level=caller.level_in(project) or 0,
    )


def expiry_of(text: str | None, name: str = "expires_at") -> float | None:
    """The beginning of a day (UTC) in seconds; 400 if the text is no date."""
    if not text:
        return None
    try:
        return datetime.combine(date.fromisoformat(text[:10]), time(), UTC).timestamp()
    except ValueError:
        raise bad_parameter(f"{name} is invalid: expected a date such as 2026-01-31") from None


def day_of(seconds: float | None) -> str | None:
    """A date such as 2026-01-31."""
    return None if seconds is None else rfc3339(seconds)[:10]


def _view(edge: Edge, user: User, member: Member) -> MemberShape:
    view = replace(user_view(edge.settings.url, user), created_at=rfc3339(member.created_at))
    return MemberShape(**asdict(view), access_level=member.level, expires_at=day_of(member.expires_at))


async def _views(edge: Edge, members: Iterable[Member]) -> list[MemberShape]:
    users = [(await edge.store.people.load_user(member.user_id), member) for member in members]
    return [_view(edge, user, member) for user, member in users if user is not None]


async def _members(edge: Edge, owner: Pool) -> list[Member]:
    """Direct members whose membership has not expired."""
    return active_members(await edge.store.people.list_members(owner), edge.clock.wall())


async def list_direct(edge: Edge, request: Request) -> Response:
    """GET .../members: list the direct members."""
    place = await _place(edge, request)
    return slice_answer(request, await _views(edge, await _members(edge, place.owner)))


async def list_all(edge: Edge, request: Request) -> Response:
    """GET .../members/all: list all members, inherited ones too, each with the highest level."""
    return slice_answer(request, await _views(edge, (await _all(edge, await _place(edge, request))).values()))


async def _all(edge: Edge, place: _Place) -> dict[int, Member]:
    members: dict[int, Member] = {}
    for owner in (place.owner, *place.above):
        for member in await _members(edge, owner):
            if member.user_id not in members or members[member.user_id].level < member.level:
                members[member.user_id] = member
    return members


async def list_users(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/users: list the users who are members, directly or by a group."""
    users = [await edge.store.people.load_user(number) for number in await _all(edge, await _place(edge, request))]
    search = request.query_params.get("search", "").casefold()
    url = edge.settings.url
    views = [user_view(url, user) for user in users if user and search in f"{user.username}\n{user.name}".casefold()]
    return slice_answer(request, views)


async def show(edge: Edge, request: Request) -> Response:
    """GET .../members/:user_id: show a direct member."""
    member = await _direct(edge, request, await _place(edge, request))
    return json_answer((await _views(edge, [member]))[0])


async def show_any(edge: Edge, request: Request) -> Response:
    """GET .../members/all/:user_id: show a member, direct or inherited."""
    member = (await _all(edge, await _place(edge, request))).get(number_in_path(request, "user_id"))
    if member is None:
        raise not_found("Member")
    return json_answer((await _views(edge, [member]))[0])


async def _direct(edge: Edge, request: Request, place: _Place) -> Member:
    number = number_in_path(request, "user_id")
    for member in await _members(edge, place.owner):
        if member.user_id == number:
            return member
    raise not_found("Member")


def _check_level(level: int, place: _Place) -> None:
    if level not in _LEVELS:
        raise bad_parameter("access_level does not have a valid value")
    if level > place.level:
        raise forbidden("you cannot give a higher level than your own")


async def add(edge: Edge, request: Request) -> Response:
    """POST .../members: add a member."""
    place = await _place(edge, request)
    params = await parameters(request, NewMember, limit_bytes=edge.settings.body_limit_bytes)
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
    return json_answer(_view(edge, user, member), 201)


async def update(edge: Edge, request: Request) -> Response:
    """PUT .../members/:user_id: change the level or the expiry of a member."""
    place = await _place(edge, request)
    member = await _direct(edge, request, place)
    params = await parameters(request, MemberChange, limit_bytes=edge.settings.body_limit_bytes)
    _check_level(params.access_level, place)
    _check_level(member.level, place)
    if params.access_level < Level.OWNER:
        await _check_owners(edge, place, member)
    expires_at = member.expires_at if params.expires_at is None else expiry_of(params.expires_at)
    changed = replace(member, level=params.access_level, expires_at=expires_at)
    await edge.store.people.put_member(changed)
    return json_answer((await _views(edge, [changed]))[0])


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE .../members/:user_id: remove a member. Everybody may remove themselves."""
    place = await _place(edge, request)
    member = await _direct(edge, request, place)
    if member.user_id != caller_of(request).user.id:
        if place.level < (Level.OWNER if place.owner[0] == "group" else Level.MAINTAINER):
            raise forbidden()
        _check_level(member.level, place)
    await _check_owners(edge, place, member)
    await edge.store.people.remove_member(place.owner, member.user_id)
    return no_content()


async def _check_owners(edge: Edge, place: _Place, member: Member) -> None:
    """403 if a top-level group would lose its last owner."""
    if member.level < Level.OWNER or place.owner[0] != "group" or place.above:
        return
    owners = [other for other in await _members(edge, place.owner) if other.level >= Level.OWNER]
    if len(owners) == 1:
        raise forbidden("a group needs an owner; make somebody else an owner first")


def _endpoints() -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    places = (
        ("/api/v4/groups/{id}/members", in_group(Level.GUEST), in_group(Level.OWNER)),
        ("/api/v4/projects/{id}/members", in_project(Level.GUEST), in_project(Level.MAINTAINER)),
    )
    for root, reading, changing in places:
        endpoints += [
            Endpoint("GET", root, list_direct, reading, gives=list[MemberShape]),
            Endpoint("GET", f"{root}/all", list_all, reading, gives=list[MemberShape]),
            Endpoint("GET", f"{root}/all/{{user_id}}", show_any, reading, gives=MemberShape),
            Endpoint("GET", f"{root}/{{user_id}}", show, reading, gives=MemberShape),
            Endpoint("POST", root, add, changing, takes=NewMember, gives=MemberShape, also=(409,)),
            Endpoint("PUT", f"{root}/{{user_id}}", update, changing, takes=MemberChange, gives=MemberShape),
            Endpoint("DELETE", f"{root}/{{user_id}}", remove, reading),
        ]
    return tuple(endpoints)


ENDPOINTS = (
    *_endpoints(),
    Endpoint(
        "GET",
        "/api/v4/projects/{id}/users",
        list_users,
        in_project(Level.GUEST),
        query={"search": str},
        gives=list[UserShape],
    ),
)
