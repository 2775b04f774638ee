"""Rights of users: their access levels from memberships, and how the scopes of a token restrict these rights.

- A level in a group counts for everything inside it; of several levels the highest counts.
- The owner of a namespace owns the projects in it.
- Every user of an organization can read its projects that are not private.
- Who is not signed in (a user without id) reads public projects, where the cell allows it.
- An administrator may do everything. Nobody else sees anything of another organization.

Each endpoint declares what it needs (`remuda.cell.http.edge.access`)."""

from collections.abc import Collection, Iterable, Sequence

from remuda.cell.values import Project
from remuda.cell.values.people import Level, Member, Namespace, Sight, User
from remuda.model.runner import Pool

ADMINISTRATOR = 60
"""The level of an administrator, above all levels of members."""

SCOPES = (
    "api",
    "read_api",
    "read_user",
    "read_repository",
    "write_repository",
    "create_runner",
    "manage_runner",
    "read_registry",
    "write_registry",
    "ai_features",
    "self_rotate",
)
"""Scopes of personal access tokens, as in GitLab."""
RESOURCE_SCOPES = tuple(scope for scope in SCOPES if scope != "read_user")
"""Scopes of the access tokens of projects and groups."""
ADMINISTRATOR_SCOPES = ("admin_mode", "sudo")
"""Further scopes, only for tokens of administrators."""


def unknown_scopes(scopes: Iterable[str], user: User) -> list[str]:
    """Return those of the scopes that do not exist or that a token of this user cannot have."""
    allowed = {*SCOPES, *(ADMINISTRATOR_SCOPES if user.is_admin else ())}
    return [scope for scope in scopes if scope not in allowed]


def scopes_allow(scopes: Collection[str], *, is_reading: bool, also: Collection[str] = ()) -> bool:
    """Return whether a token may make a call: it has the scope `api`, one of `also`, or for reading `read_api`."""
    sufficient = {"api", *also, *(("read_api",) if is_reading else ())}
    return not sufficient.isdisjoint(scopes)


def active_members(members: Iterable[Member], now: float) -> list[Member]:
    return [member for member in members if member.expires_at is None or member.expires_at > now]


def _highest(members: Sequence[Member], owners: Collection[Pool]) -> int:
    return max((member.level for member in members if member.owner in owners), default=0)


def project_level(user: User, members: Sequence[Member], project: Project) -> int | None:
    """Return the user's level in a project; None if it is not visible. `members` are the unexpired memberships."""
    if user.is_admin:
        return ADMINISTRATOR
    if not user.id:
        return Level.REPORTER if project.visibility == "public" else None
    if project.organization_id != user.organization_id:
        return None
    if project.namespace_id == user.namespace_id:
        return Level.OWNER
    groups = [("group", group_id) for group_id in project.group_ids]
    level = _highest(members, [("project", int(project.id)), *groups])
    if project.visibility != "private":
        level = max(level, Level.REPORTER)
    return level or None


def group_level(user: User, members: Sequence[Member], namespace: Namespace) -> int | None:
    """Return the user's level in a group or a user's namespace: 0 if the user only sees it, None if the user cannot see
    it. `members` are the user's memberships that have not expired."""
    if user.is_admin:
        return ADMINISTRATOR
    if not user.id or namespace.organization_id != user.organization_id:
        return None
    if not namespace.is_group:
        return Level.OWNER if namespace.owner_id == user.id else None
    level = _highest(members, [("group", group_id) for group_id in namespace.group_ids])
    return level or (0 if namespace.visibility != "private" else None)


def sight(user: User, members: Iterable[Member]) -> Sight | None:
    """Return a filter that limits lists to what the user can see; None for an administrator, who sees everything."""
    if user.is_admin:
        return None
    owners = [member.owner for member in members]
    return Sight(
        organization_id=user.organization_id,
        namespace_id=user.namespace_id,
        project_ids=frozenset(number for kind, number in owners if kind == "project"),
        group_ids=frozenset(number for kind, number in owners if kind == "group"),
    )
