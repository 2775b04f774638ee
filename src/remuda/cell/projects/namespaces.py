"""Creates and lists groups, the namespaces in which projects are (besides the users' own namespaces).

A group may be in one other group, of the same organization; users' own namespaces contain no groups. Callers check the
user's rights before.

Invariant: a namespace is created before the projects and groups in it and removed after them, so none of these is ever
without its namespace."""

from msgspec.structs import replace

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.projects.paths import check_path
from remuda.cell.store.ports import Store
from remuda.cell.values import ORGANIZATION_ID, Page, Project
from remuda.cell.values.people import ALL_PROJECTS, Level, Member, Namespace, NamespaceFilter, ProjectFilter
from remuda.lib.clock import Clock

_ADOPTED = "namespaces_adopted"
"""The name of a setting in the store: set when all projects of an older release have their groups."""
_PAGE = 100


class Namespaces:
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
        """Create a group in `parent`, or at the top level if that is None. `path` is the last part of the group's full
        path; the user `owner_id` becomes its owner. Raises InvalidError if the path is invalid, ConflictError if it is
        taken."""
        if parent is not None and not parent.is_group:
            raise InvalidError("a user's own namespace cannot contain groups")
        full_path = check_path(f"{parent.path}/{path}" if parent else path, least_parts=1)
        if "/" in path:
            raise InvalidError("path must not contain '/'; give the parent group with parent_id")
        now = self._clock.now()
        group = Namespace(
            id=0,
            path=full_path,
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
        """Return the namespace with this full path; if there is none, create the group and its missing parents."""
        if namespace := await self._store.people.find_namespace(path):
            return namespace
        above, _, last = path.rpartition("/")
        parent = await self.ensure(above, organization_id) if above else None
        try:
            return await self.create(last, name=last, parent=parent, organization_id=organization_id)
        except ConflictError:
            # Another call has created it meanwhile; or a project has the path, and a project holds nothing.
            if namespace := await self._store.people.find_namespace(path):
                return namespace
            raise

    async def adopt_projects(self) -> None:
        """Create and store the groups of projects that a release without groups stored; later calls do nothing."""
        if await self._store.settings.load_setting(_ADOPTED):
            return
        for project in await list_all_projects(self._store):
            namespace = await self.ensure(project.path.rpartition("/")[0], project.organization_id)
            if project.namespace_id != namespace.id:
                await self._store.projects.change_project(
                    project.id,
                    lambda row, parent=namespace: replace(  # type: ignore[misc]
                        row, namespace_id=parent.id, group_ids=parent.group_ids
                    ),
                )
        await self._store.settings.put_setting(_ADOPTED, "1")

    async def inside(self, group: Namespace) -> list[Namespace]:
        """Return all subgroups of a group, recursively, the deepest first."""
        groups: list[Namespace] = []
        while True:
            page = Page(number=len(groups) // _PAGE + 1, size=_PAGE)
            rows, total = await self._store.people.list_namespaces(page, NamespaceFilter(inside=group.id))
            groups += rows
            if not rows or len(groups) >= total:
                return sorted(groups, key=lambda namespace: len(namespace.above), reverse=True)


async def list_all_projects(store: Store, selection: ProjectFilter = ALL_PROJECTS) -> list[Project]:
    projects: list[Project] = []
    while True:
        page, total = await store.projects.list_projects(Page(number=len(projects) // _PAGE + 1, size=_PAGE), selection)
        projects += page
        if not page or len(projects) >= total:
            return projects
