"""The store's interface to projects, CI/CD variables, and the refs whose last push the cell has processed."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace as with_fields

from remuda.cell.store.ports.database import PATHS, Database, Transaction
from remuda.cell.store.ports.people import check_path_is_free
from remuda.cell.store.ports.tables import PROJECTS, SEEN_REFS, VARIABLES, SeenRef
from remuda.cell.values import Page, Project, ProjectVariable
from remuda.cell.values.people import ALL_PROJECTS, ProjectFilter
from remuda.model.job import ProjectId


class ProjectStore:
    """Stores projects, CI/CD variables and seen refs: for each ref the commit of the last push that was processed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_project(self, project: Project) -> Project:
        """Store a project with a new id. Raises ConflictError if another project or a namespace has the same path."""

        async def add(rows: Transaction) -> Project:
            await check_path_is_free(rows, project.path)
            added = with_fields(project, id=ProjectId(await rows.draw_id(PROJECTS)))
            await rows.add(PROJECTS, added)
            return added

        return await self._database.change(add, PATHS)

    async def load_project(self, project_id: ProjectId) -> Project | None:
        return await self._database.find(PROJECTS, id=project_id)

    async def find_project(self, path: str) -> Project | None:
        return await self._database.find(PROJECTS, path_key=path.casefold())

    async def list_projects(self, page: Page, selection: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        """Return one page of the projects that match `selection`, newest first, and the total number of matches."""
        return await self._database.find_page(PROJECTS, page, selection)

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        """Store and return what `decide` returns for a project; None if it returns None or there is no such project.
        Raises ConflictError if another project or namespace has the new path."""

        async def change(rows: Transaction) -> Project | None:
            project = await rows.find_locked(PROJECTS, id=project_id)
            changed = decide(project) if project else None
            if changed is not None:
                await check_path_is_free(rows, changed.path, but=project_id)
                await rows.update(PROJECTS, changed)
            return changed

        return await self._database.change(change, PATHS)

    async def list_variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        """Return the project's own variables, ordered by key and environment scope."""
        order = ("key", "environment_scope")
        return await self._database.find_all(VARIABLES, order=order, project_id=project_id, group_id=0)

    async def list_shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        """Return the variables of the cell and of these groups, ordered by group, key and environment scope."""
        return await self._database.find_all(
            VARIABLES,
            where=("group_id", "in", [0, *group_ids]),
            order=("group_id", "key", "environment_scope"),
            project_id=0,
        )

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        """Add a variable, or overwrite it with `replace`. Returns False if it exists, with `replace` if it does not."""
        put = self._database.update if replace else self._database.add_if_absent
        return await put(VARIABLES, variable)

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool:
        where = {"project_id": project_id, "group_id": group_id, "key": key, "environment_scope": environment_scope}
        return bool(await self._database.remove(VARIABLES, **where))

    async def load_seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        """Return for each ref of the project, by full name, the commit of the last push that the cell has processed."""
        return {row.ref: row.sha for row in await self._database.find_all(SEEN_REFS, project_id=project_id)}

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """Return whether the cell has processed a push to this full ref name, and no deletion of the ref since."""
        return await self._database.find(SEEN_REFS, project_id=project_id, ref=ref) is not None

    async def put_seen_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        """Record commits, by full ref name, as processed: they start no pipeline. None removes a deleted ref."""

        async def put(rows: Transaction) -> None:
            for ref, sha in sorted(refs.items()):
                if sha is None:
                    await rows.remove(SEEN_REFS, project_id=project_id, ref=ref)
                else:
                    await rows.put(SEEN_REFS, SeenRef(project_id, ref, sha))

        await self._database.change(put)
