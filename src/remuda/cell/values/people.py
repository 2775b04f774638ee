"""Stored values of organizations, namespaces, users and members; filters for lists of them, of projects and runners.

The method `fits` defines which values a filter selects; the SQL stores select the same values."""

from collections.abc import Collection
from enum import IntEnum
from string import ascii_uppercase

import msgspec

from remuda.cell.values import NAMESPACE_ID, ORGANIZATION_ID, USER_ID, Project, Runner, Value
from remuda.model.runner import Pool

ONLINE_SECONDS = 2 * 3600
"""A runner or manager with a contact within this time is online, as in GitLab."""
PRESENT_SECONDS = 300
"""A manager with free capacity polls at least once a minute. After this time without contact or jobs it is gone."""
STALE_SECONDS = 7 * 24 * 3600
"""A runner or manager without contact for this time is stale, as in GitLab."""
NO_CONTACT = "never_contacted"
_LOWER = {ord(letter): letter.lower() for letter in ascii_uppercase}
STATUSES = ("online", "offline", "stale", NO_CONTACT)


class Level(IntEnum):
    """Access levels with GitLab's names and numbers. Each includes the rights of the lower ones."""

    GUEST = 10
    PLANNER = 15
    REPORTER = 20
    DEVELOPER = 30
    MAINTAINER = 40
    OWNER = 50


class Organization(Value, frozen=True, kw_only=True):
    """A tenant of the cell: its users and projects are invisible to other organizations."""

    id: int
    path: str
    """Unique without regard to case."""
    name: str
    created_at: float
    description: str = ""


class Namespace(Value, frozen=True, kw_only=True):
    """A container of projects: a group, which may be inside another group, or the personal namespace of a user."""

    id: int
    path: str
    """The full path, unique without regard to case among namespaces and projects."""
    name: str
    created_at: float
    organization_id: int = ORGANIZATION_ID
    parent_id: int | None = None
    above: tuple[int, ...] = ()
    """Ids of its parent groups, the nearest first."""
    owner_id: int | None = None
    """The user, if it is the namespace of one; None for a group."""
    description: str = ""
    visibility: str = "private"

    @property
    def is_group(self) -> bool:
        return self.owner_id is None

    @property
    def group_ids(self) -> tuple[int, ...]:
        """The ids of the groups that contain this namespace's projects, nearest first; none for a user's namespace."""
        return (self.id, *self.above) if self.is_group else ()


class User(Value, frozen=True, kw_only=True):
    """A user. Administrators may do everything in all organizations."""

    id: int
    username: str
    """Unique without regard to case."""
    name: str
    email: str
    created_at: float
    """0: not known, because an older version created the cell and its first user."""
    organization_id: int = ORGANIZATION_ID
    namespace_id: int = 0
    is_admin: bool = False
    state: str = "active"
    """active or blocked."""
    bot_of: Pool | None = None
    """The project or group whose access token this user (a bot, without a namespace) stands for; None for people."""


class Member(Value, frozen=True, kw_only=True):
    """The access level of a user in a project, or in a group and everything in it."""

    owner: Pool
    """("group", id) or ("project", id)."""
    user_id: int
    level: int
    created_at: float
    expires_at: float | None = None


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a user can see: own projects, groups and namespace, and all that is not private in the organization."""

    organization_id: int
    namespace_id: int
    project_ids: frozenset[int] = frozenset()
    group_ids: frozenset[int] = frozenset()

    def owns(self, project: Project) -> bool:
        """Return whether the user is a member of the project or a group above it, or it is in the user's namespace."""
        return project.organization_id == self.organization_id and (
            project.id in self.project_ids
            or project.namespace_id == self.namespace_id
            or not self.group_ids.isdisjoint(project.group_ids)
        )


class ProjectFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects projects: deleted ones if `removed`, else the others. An empty or None field restricts nothing."""

    search: str = ""
    namespace_id: int | None = None
    """Directly in this namespace."""
    group_id: int | None = None
    """In this group or its subgroups."""
    visibility: str = ""
    sight: Sight | None = None
    """Visible to this user."""
    membership: bool = False
    """Only projects of `sight` of which the user is a member."""
    removed: bool = False
    """Only deleted projects. If False, only existing ones."""
    archived: bool | None = None
    topics: tuple[str, ...] = ()
    """Only projects that have all these topics."""

    def fits(self, project: Project) -> bool:
        sight = self.sight
        return (
            (project.removed_at is not None) is self.removed
            and self.search.casefold() in f"{project.path}\n{project.name}".casefold()
            and self.namespace_id in (None, project.namespace_id)
            and (self.group_id is None or self.group_id in project.group_ids)
            and self.visibility in ("", project.visibility)
            and self.archived in (None, project.archived)
            and set(self.topics) <= set(project.topics)
            and (
                sight is None
                or sight.owns(project)
                or (
                    not self.membership
                    and project.organization_id == sight.organization_id
                    and project.visibility != "private"
                )
            )
        )


ALL_PROJECTS = ProjectFilter()


class NamespaceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects namespaces. An empty, None or False field restricts nothing, but `is_group` False selects users' ones."""

    search: str = ""
    parent_id: int | None = None
    """Direct subgroups of this group."""
    inside: int | None = None
    """All subgroups of this group."""
    is_group: bool | None = None
    top_level: bool = False
    sight: Sight | None = None

    def fits(self, namespace: Namespace) -> bool:
        return (
            self.search.casefold() in f"{namespace.path}\n{namespace.name}".casefold()
            and self.parent_id in (None, namespace.parent_id)
            and (self.inside is None or self.inside in namespace.above)
            and self.is_group in (None, namespace.is_group)
            and not (self.top_level and namespace.parent_id is not None)
            and (self.sight is None or _sees(self.sight, namespace))
        )


def _sees(sight: Sight, namespace: Namespace) -> bool:
    if namespace.organization_id != sight.organization_id:
        return False
    if not namespace.is_group:
        return namespace.id == sight.namespace_id
    return namespace.visibility != "private" or not sight.group_ids.isdisjoint(namespace.group_ids)


class RunnerFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects runners. An empty or None field restricts nothing, but an empty tuple `pools` selects no runner."""

    type: str = ""
    paused: bool | None = None
    tags: tuple[str, ...] = ()
    """Tags that a runner must all have."""
    pools: tuple[Pool, ...] | None = None
    """Pools of which a runner must serve one; an empty tuple selects no runner."""
    status: str = ""
    """online, offline, stale or never_contacted, at the time `now`."""
    now: float = 0
    search: str = ""
    """Part of the description, ignoring the case of ASCII letters, or the id."""
    version_prefix: str = ""
    """The beginning of the version of one of the runner's managers."""

    def fits(self, runner: Runner, contacted_at: float | None, versions: Collection[str] = ()) -> bool:
        """Return whether the filter selects a runner whose managers last called at `contacted_at` (None: never), and
        whose managers have these versions."""
        return (
            (fold_ascii(self.search) in fold_ascii(runner.description) or self.search == str(runner.id))
            and (not self.version_prefix or any(version.startswith(self.version_prefix) for version in versions))
            and self.type in ("", runner.type.value)
            and self.paused in (None, runner.paused)
            and set(self.tags) <= set(runner.tags)
            and (self.pools is None or not runner.pools().isdisjoint(self.pools))
            and self.status in ("", status_of(runner.created_at, contacted_at, self.now))
        )


ALL_RUNNERS = RunnerFilter()


def fold_ascii(text: str) -> str:
    """Return the text with its ASCII letters in lower case, and all others unchanged, as both databases do it."""
    return text.translate(_LOWER)


def status_of(created_at: float, contacted_at: float | None, now: float) -> str:
    """Return GitLab's status of a runner or manager by its last contact: online, offline, stale or never_contacted."""
    if contacted_at is not None and now - contacted_at < ONLINE_SECONDS:
        return "online"
    if now - (created_at if contacted_at is None else contacted_at) >= STALE_SECONDS:
        return "stale"
    return NO_CONTACT if contacted_at is None else "offline"


def ids_of(pools: Collection[Pool], kind: str) -> list[int]:
    """Return the sorted ids of those `pools` that have this kind: `cell`, `organization`, `group` or `project`."""
    return sorted(number for name, number in pools if name == kind)


FIRST_ORGANIZATION = Organization(id=ORGANIZATION_ID, path="default", name="Default", created_at=0)
FIRST_NAMESPACE = Namespace(id=NAMESPACE_ID, path="root", name="Administrator", created_at=0, owner_id=USER_ID)
FIRST_USER = User(
    id=USER_ID,
    username="root",
    name="Administrator",
    email="admin@example.com",
    created_at=0,
    namespace_id=NAMESPACE_ID,
    is_admin=True,
)
"""Every new store has this user, the first organization and the first namespace. The first start of the cell sets the
time of the user."""
