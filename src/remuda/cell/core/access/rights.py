"""What a user may see and do, from memberships; what a token's scopes leave of that.

Pure. Decided here: a level in a group counts for everything in it, the highest counts; whoever owns a namespace owns
the projects in it; what is not private is read by everybody of its organization; an administrator may do everything
everywhere, and nobody else sees anything of another organization. What each call needs is declared with its endpoint
(`remuda.cell.http.edge.access`).
"""

from collections.abc import Collection, Iterable, Sequence

from remuda.cell.values import Project
from remuda.cell.values.people import Level, Member, Namespace, Sight, User
from remuda.model.runner import Pool

ADMINISTRATOR = 60
"""Above all levels."""

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
"""What a token can be limited to, in GitLab's words."""
ADMINISTRATOR_SCOPES = ("admin_mode", "sudo")
"""Those that only an administrator's token may have beside these."""


def unknown_scopes(scopes: Iterable[str], user: User) -> list[str]:
    """Those that a token of this user cannot have."""
    known = {*SCOPES, *(ADMINISTRATOR_SCOPES if user.is_admin else ())}
    return [scope for scope in scopes if scope not in known]


def scopes_allow(scopes: Collection[str], *, is_reading: bool, also: Collection[str] = ()) -> bool:
    """Whether a token with these scopes is good for a call: `api` is for all, `read_api` for all that only read."""
    wanted = {"api", *also, *(("read_api",) if is_reading else ())}
    return not wanted.isdisjoint(scopes)


def active_members(members: Iterable[Member], now: float) -> list[Member]:
    """Those that have not expired."""
    return [member for member in members if member.expires_at is None or member.expires_at > now]


def _highest(members: Sequence[Member], owners: Collection[Pool]) -> int:
    return max((member.level for member in members if member.owner in owners), default=0)


def project_level(user: User, members: Sequence[Member], project: Project) -> int | None:
    """The user's level in a project; None when the user may not even know of it. `members` are the user's, valid."""
    if user.is_admin:
        return ADMINISTRATOR
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
    """The user's level in a namespace; None when the user may not even know of it."""
    if user.is_admin:
        return ADMINISTRATOR
    if namespace.organization_id != user.organization_id:
        return None
    if not namespace.is_group:
        return Level.OWNER if namespace.owner_id == user.id else None
    level = _highest(members, [("group", group_id) for group_id in namespace.group_ids])
    return level or (0 if namespace.visibility != "private" else None)


def sight(user: User, members: Iterable[Member]) -> Sight | None:
    """What the user sees in lists; None: everything."""
    if user.is_admin:
        return None
    owners = [member.owner for member in members]
    return Sight(
        organization_id=user.organization_id,
        namespace_id=user.namespace_id,
        project_ids=frozenset(number for kind, number in owners if kind == "project"),
        group_ids=frozenset(number for kind, number in owners if kind == "group"),
    )
