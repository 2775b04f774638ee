"""Users in GitLab's form, and who the caller is. Only administrators create, change, block and delete users. People see
the users of their own organization."""

import re
from typing import Annotated, ClassVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.http.edge.access import ADMINISTRATOR, USER
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.bodies import flag_in_query, with_given
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, forbidden, not_found
from remuda.cell.http.edge.lookup import number_in_path
from remuda.cell.http.edge.paging import KEYSET, page_answer, page_by_id, slice_answer
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.groups import remove_group
from remuda.cell.http.gitlab.projects import check_texts, remove_project
from remuda.cell.http.gitlab.views import UserShape, time_text, user_view
from remuda.cell.projects.namespaces import list_all_projects
from remuda.cell.projects.paths import check_path
from remuda.cell.values import USER_ID
from remuda.cell.values.people import Level, Namespace, ProjectFilter, User

_UNSUPPORTED = Unsupported(refused={"external": (False,)})
"""External users, who do not see what is internal, would see it here."""
_EMAIL = re.compile(r"[^@\s]{1,200}@[^@\s]{1,200}")


_READ = USER.with_scopes("read_user")
_ROOT = "/api/v4/users"
_LISTED = {"search": str, "username": str, "active": bool, "blocked": bool}
routes = Routes()


class NewUser(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = _UNSUPPORTED
    username: str
    name: str
    email: str
    admin: bool = False
    organization_id: int | None = None


class UserChange(msgspec.Struct, kw_only=True):
    unsupported: ClassVar[Unsupported] = _UNSUPPORTED
    name: str | None = None
    email: str | None = None
    admin: bool | None = None


def whole_view(edge: Edge, user: User) -> UserShape:
    """The API response for a user with all fields, which only administrators and the user themselves get."""
    return msgspec.structs.replace(
        user_view(edge.settings.url, user),
        email=user.email,
        is_admin=user.is_admin,
        created_at=time_text(user.created_at or None),
        organization_id=user.organization_id,
        namespace_id=user.namespace_id,
        bot=user.bot_of is not None,
    )


@routes.get("/api/v4/user", _READ)
async def show_self(edge: Edge, caller: Caller) -> UserShape:
    """Show the user who calls."""
    return whole_view(edge, caller.user)


@routes.post(_ROOT, ADMINISTRATOR, also=(409,))
async def create(edge: Edge, caller: Caller, params: NewUser) -> UserShape:
    """Create a user."""
    check_texts(name=params.name, description=None, visibility=None)
    _check_email(params.email)
    organization_id = caller.user.organization_id if params.organization_id is None else params.organization_id
    if await edge.store.people.load_organization(organization_id) is None:
        raise bad_field("organization_id", "there is no such organization")
    now = edge.clock.now()
    try:
        if "/" in params.username:
            raise InvalidError("a name cannot contain '/'")
        name = check_path(params.username, least_parts=1)
        user = User(
            id=0,
            username=name,
            name=params.name,
            email=params.email,
            created_at=now,
            organization_id=organization_id,
            is_admin=params.admin,
        )
        namespace = Namespace(id=0, path=name, name=params.name, created_at=now, organization_id=organization_id)
        added = await edge.store.people.add_user(user, namespace)
    except ConflictError:
        raise ApiError(409, {"message": "Username has already been taken"}) from None
    except InvalidError as error:
        raise bad_field("username", str(error)) from None
    return whole_view(edge, added)


def _check_email(email: str) -> None:
    if not _EMAIL.fullmatch(email):
        raise bad_field("email", "is invalid")


async def _find(edge: Edge, request: Request) -> User:
    """The user whose id is in the path. Raises ApiError 404 if there is none, or if the caller may not see them."""
    caller, user = caller_of(request).user, await edge.store.people.load_user(number_in_path(request, "id"))
    if user is None or not (caller.is_admin or caller.organization_id == user.organization_id):
        raise not_found("User")
    return user


@routes.get(f"{_ROOT}/{{id}}", _READ)
async def show(edge: Edge, caller: Caller, user: Annotated[User, _find]) -> UserShape:
    """Show a user."""
    is_whole = caller.user.is_admin or caller.user.id == user.id
    return whole_view(edge, user) if is_whole else user_view(edge.settings.url, user)


@routes.get(_ROOT, _READ, query=_LISTED | KEYSET, gives=list[UserShape])
async def list_all(edge: Edge, request: Request) -> Response:
    """List the users that the caller may see."""
    caller, query, page = caller_of(request).user, request.query_params, page_by_id(request)

    def view(user: User) -> UserShape:
        return whole_view(edge, user) if caller.is_admin else user_view(edge.settings.url, user)

    states = [state for state in ("active", "blocked") if flag_in_query(request, state)]
    if len(states) > 1:
        return slice_answer(request, [])
    state = "".join(states)
    if username := query.get("username"):
        user = await edge.store.people.find_user(username)
        is_visible = user is not None and (caller.is_admin or caller.organization_id == user.organization_id)
        return slice_answer(request, [view(user)] if user and is_visible and state in ("", user.state) else [])
    users, total = await edge.store.people.list_users(
        page,
        search=query.get("search", ""),
        organization_id=None if caller.is_admin else caller.organization_id,
        state=state,
    )
    return page_answer(request, [view(user) for user in users], total, page)


@routes.put(f"{_ROOT}/{{id}}", ADMINISTRATOR)
async def update(edge: Edge, user: Annotated[User, _find], params: UserChange) -> UserShape:
    """Change a user."""
    check_texts(name=params.name, description=None, visibility=None)
    if params.email is not None:
        _check_email(params.email)
    if params.admin is False and user.id == USER_ID:
        raise bad_parameter("admin: the first user must stay an administrator")
    if params.admin and user.bot_of is not None:
        raise bad_parameter("admin: the user of an access token cannot be an administrator")
    changed = with_given(user, name=params.name, email=params.email, is_admin=params.admin)
    await edge.store.people.put_user(changed)
    return whole_view(edge, changed)


@routes.delete(f"{_ROOT}/{{id}}", ADMINISTRATOR, query={"hard_delete": bool}, also=(409,))
async def remove(edge: Edge, request: Request, caller: Caller, user: Annotated[User, _find]) -> None:
    """Delete a user with tokens, memberships and own projects; with `hard_delete` also groups that only they own."""
    if user.id in (USER_ID, caller.user.id):
        raise forbidden("you cannot delete the first user or yourself")
    groups = await _list_solely_owned(edge, user)
    if groups and not flag_in_query(request, "hard_delete"):
        paths = ", ".join(group.path for group in groups)
        raise ApiError(
            409,
            {"message": f"User cannot be removed: only owner of {paths}; add an owner there, or give hard_delete=true"},
        )
    # First block the user, so that they create nothing meanwhile. After a death in the middle, call again.
    await edge.store.people.put_user(msgspec.structs.replace(user, state="blocked"))
    for group in groups:
        await remove_group(edge, group)
    for project in await list_all_projects(edge.store, ProjectFilter(namespace_id=user.namespace_id)):
        await remove_project(edge, project)
    await edge.store.people.remove_user(user.id)


async def _list_solely_owned(edge: Edge, user: User) -> list[Namespace]:
    """The top-level groups of which the user is the only owner."""
    groups: list[Namespace] = []
    for member in await edge.store.people.list_memberships(user.id):
        if member.owner[0] == "group" and member.level >= Level.OWNER:
            group = await edge.store.people.load_namespace(member.owner[1])
            owners = [row for row in await edge.store.people.list_members(member.owner) if row.level >= Level.OWNER]
            if group is not None and group.parent_id is None and len(owners) == 1:
                groups.append(group)
    return groups


@routes.post(f"{_ROOT}/{{id}}/block", ADMINISTRATOR)
async def block(edge: Edge, caller: Caller, user: Annotated[User, _find]) -> bool:
    """Block a user. Their tokens stop working, their pipelines cannot read other projects, their sessions end."""
    if user.id in (USER_ID, caller.user.id):
        raise forbidden("you cannot block the first user or yourself")
    await edge.store.people.put_user(msgspec.structs.replace(user, state="blocked"))
    await edge.store.sessions.remove_sessions_of(user.id)
    return True


@routes.post(f"{_ROOT}/{{id}}/unblock", ADMINISTRATOR)
async def unblock(edge: Edge, user: Annotated[User, _find]) -> bool:
    """Unblock a user."""
    await edge.store.people.put_user(msgspec.structs.replace(user, state="active"))
    return True
