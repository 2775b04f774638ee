"""Groups, and the namespaces that projects are in.

Decided here: that a group is inside one group at most and in its organization, that users' own namespaces hold no
groups, and that a group goes with everything in it. Who may do that is decided at the edge. Called by the HTTP edge and
by `remuda.cell.projects.projects`.

Invariant: a namespace is made before what is in it and removed after it, so nothing ever lacks the one it is in.
"""

from msgspec.structs import replace

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.projects.paths import check_path
from remuda.cell.store.ports import Store
from remuda.cell.values import ORGANIZATION_ID, Page, Project
from remuda.cell.values.people import Level, Member, Namespace, NamespaceFilter, ProjectFilter
from remuda.lib.clock import Clock

_ADOPTED = "namespaces_adopted"
"""A setting of the store: all projects of an older release are in the groups that their paths name."""
_PAGE = 100


class Namespaces:
    """The groups of one cell."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(
        self,
        path: str,
        *,
        name: str,
        parent: Namespace | None = None,
        organization_id: int = ORGANIZATION_ID,
        description: str = "",
        visibility: str = "private",
        owner_id: int | None = None,
    ) -> Namespace:
        """A new group, `path` being the last part of its path; InvalidError or ConflictError when it cannot be."""
        if parent is not None and not parent.is_group:
            raise InvalidError("a user's own namespace holds no groups")
        full = check_path(f"{parent.path}/{path}" if parent else path, least_parts=1)
        if "/" in path:
            raise InvalidError("path has no '/': the group that it is in is given by parent_id")
        now = self._clock.now()
        group = Namespace(
            id=0,
            path=full,
            name=name,
            created_at=now,
            organization_id=parent.organization_id if parent else organization_id,
            parent_id=parent.id if parent else None,
            above=parent.group_ids if parent else (),
            description=description,
            visibility=visibility,
        )
        if owner_id is None:
            return await self._store.people.add_namespace(group)
        owner = Member(owner=("group", group.id), user_id=owner_id, level=Level.OWNER, created_at=now)
        return await self._store.people.add_namespace(group, first=owner)

    async def ensure(self, path: str, organization_id: int = ORGANIZATION_ID) -> Namespace:
        """The namespace with this full path; groups that are missing are made."""
        if known := await self._store.people.find_namespace(path):
            return known
        above, _, last = path.rpartition("/")
        parent = await self.ensure(above, organization_id) if above else None
        try:
            return await self.create(last, name=last, parent=parent, organization_id=organization_id)
        except ConflictError:
            # Another call has made it meanwhile; or it is a project, and then nothing can be in it.
            if known := await self._store.people.find_namespace(path):
                return known
            raise

    async def adopt_projects(self) -> None:
        """Put the projects of an older release, which had no groups, into those that their paths name."""
        if await self._store.settings.load_setting(_ADOPTED):
            return
        for project in await list_all_projects(self._store):
            namespace = await self.ensure(project.path.rpartition("/")[0], project.organization_id)
            if project.namespace_id != namespace.id:
                await self._store.projects.change_project(
                    project.id,
                    lambda row, at=namespace: replace(row, namespace_id=at.id, group_ids=at.group_ids),  # type: ignore[misc]
                )
        await self._store.settings.put_setting(_ADOPTED, "1")

    async def inside(self, group: Namespace) -> list[Namespace]:
        """All groups in a group, the deepest first."""
        found: list[Namespace] = []
        while True:
            page = Page(number=len(found) // _PAGE + 1, size=_PAGE)
            some, total = await self._store.people.list_namespaces(page, NamespaceFilter(inside=group.id))
            found += some
            if not some or len(found) >= total:
                return sorted(found, key=lambda one: len(one.above), reverse=True)


async def list_all_projects(store: Store, wanted: ProjectFilter = ProjectFilter()) -> list[Project]:  # noqa: B008 - frozen
    """All projects that fit."""
    found: list[Project] = []
    while True:
        page, total = await store.projects.list_projects(Page(number=len(found) // _PAGE + 1, size=_PAGE), wanted)
        found += page
        if not page or len(found) >= total:
            return found
