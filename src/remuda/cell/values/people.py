"""Who there is and where things are: organizations, namespaces (groups, and users' own), users, members, as values.

And what lists are asked by: `ProjectFilter`, `RunnerFilter`. Their `fits` says what they mean; the stores in a database
say the same in SQL. What a level allows is decided in `remuda.cell.core.access.rights`.
"""

from collections.abc import Collection
from enum import IntEnum

import msgspec

from remuda.cell.values import NAMESPACE_ID, ORGANIZATION_ID, USER_ID, Project, Runner, Value
from remuda.model.runner import Pool

ONLINE_SECONDS = 2 * 3600
"""A runner or manager heard of within this time counts as online, as in GitLab."""
PRESENT_SECONDS = 300
"""One with room for a job asks at least once a minute; after so long without a word, and without jobs, it is gone."""
STALE_SECONDS = 7 * 24 * 3600
"""One that was not heard of for so long counts as stale, as in GitLab."""
NO_CONTACT = "never_contacted"
STATUSES = ("online", "offline", "stale", NO_CONTACT)


class Level(IntEnum):
    """What a member may do, GitLab's roles and numbers; each may do all that those below it may."""

    GUEST = 10
    PLANNER = 15
    REPORTER = 20
    DEVELOPER = 30
    MAINTAINER = 40
    OWNER = 50


class Organization(Value, frozen=True, kw_only=True):
    """People and projects that nobody outside of it sees."""

    id: int
    path: str
    """Unique without regard to case."""
    name: str
    created_at: float
    description: str = ""


class Namespace(Value, frozen=True, kw_only=True):
    """Where projects are: a group, perhaps inside other groups, or a user's own."""

    id: int
    path: str
    """The full path, unique without regard to case among namespaces and projects."""
    name: str
    created_at: float
    organization_id: int = ORGANIZATION_ID
    parent_id: int | None = None
    above: tuple[int, ...] = ()
    """The groups it is in, the nearest first."""
    owner_id: int | None = None
    """The user whose own it is; None for a group."""
    description: str = ""
    visibility: str = "private"

    @property
    def is_group(self) -> bool:
        return self.owner_id is None

    @property
    def group_ids(self) -> tuple[int, ...]:
        """The groups that a project in it is in."""
        return (self.id, *self.above) if self.is_group else ()


class User(Value, frozen=True, kw_only=True):
    """A person. Whoever is an administrator may do everything, in all organizations."""

    id: int
    username: str
    """Unique without regard to case."""
    name: str
    email: str
    created_at: float
    organization_id: int = ORGANIZATION_ID
    namespace_id: int = 0
    is_admin: bool = False
    state: str = "active"
    """active or blocked."""


class Member(Value, frozen=True, kw_only=True):
    """A user's level in a group (and all that is in it) or in a project."""

    owner: Pool
    """("group", id) or ("project", id)."""
    user_id: int
    level: int
    created_at: float
    expires_at: float | None = None


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a user sees: all that is not private in the organization, and whatever the user is a member of."""

    organization_id: int
    namespace_id: int
    project_ids: frozenset[int] = frozenset()
    group_ids: frozenset[int] = frozenset()

    def owns(self, project: Project) -> bool:
        """Whether the user is a member, or its owner."""
        return project.organization_id == self.organization_id and (
            project.id in self.project_ids
            or project.namespace_id == self.namespace_id
            or not self.group_ids.isdisjoint(project.group_ids)
        )


class ProjectFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which projects are wanted; what is empty or None counts for nothing."""

    search: str = ""
    namespace_id: int | None = None
    """In this namespace itself."""
    group_id: int | None = None
    """In this group, or in one inside of it."""
    visibility: str = ""
    sight: Sight | None = None
    """What this user sees."""
    membership: bool = False
    """Of `sight`, only where the user is a member."""
    removed: bool = False
    """Those that were deleted, and no others."""

    def fits(self, project: Project) -> bool:
        """Whether it is one of those wanted."""
        sight = self.sight
        return (
            (project.removed_at is not None) is self.removed
            and self.search.casefold() in f"{project.path}\n{project.name}".casefold()
            and self.namespace_id in (None, project.namespace_id)
            and (self.group_id is None or self.group_id in project.group_ids)
            and self.visibility in ("", project.visibility)
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
    """Which namespaces are wanted; what is empty or None counts for nothing."""

    search: str = ""
    parent_id: int | None = None
    """Those right inside of this group."""
    inside: int | None = None
    """All inside of this group, however deep."""
    is_group: bool | None = None
    top_level: bool = False
    sight: Sight | None = None

    def fits(self, namespace: Namespace) -> bool:
        """Whether it is one of those wanted."""
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
    """Which runners are wanted; what is empty or None counts for nothing."""

    type: str = ""
    paused: bool | None = None
    tags: tuple[str, ...] = ()
    """All of them."""
    pools: tuple[Pool, ...] | None = None
    """Those that serve one of these."""
    status: str = ""
    """online, offline, stale or never_contacted, at the time `now`."""
    now: float = 0

    def fits(self, runner: Runner, contacted_at: float | None) -> bool:
        """Whether it is one of those wanted; with the time when one of its managers was last heard of."""
        return (
            self.type in ("", runner.type.value)
            and self.paused in (None, runner.paused)
            and set(self.tags) <= set(runner.tags)
            and (self.pools is None or not runner.pools().isdisjoint(self.pools))
            and self.status in ("", status_of(runner.created_at, contacted_at, self.now))
        )


ALL_RUNNERS = RunnerFilter()


def status_of(created_at: float, contacted_at: float | None, now: float) -> str:
    """How long ago a runner or a manager was heard of, in GitLab's words."""
    if contacted_at is not None and now - contacted_at < ONLINE_SECONDS:
        return "online"
    if now - (created_at if contacted_at is None else contacted_at) >= STALE_SECONDS:
        return "stale"
    return NO_CONTACT if contacted_at is None else "offline"


def ids_of(pools: Collection[Pool], kind: str) -> list[int]:
    """The numbers among these pools of one kind."""
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
"""What every store has from the beginning."""
