"""Projects, CI/CD variables, and the refs of projects that were already handled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from remuda.cell.values import Page, Project, ProjectVariable
from remuda.cell.values.people import ALL_PROJECTS, ProjectFilter
from remuda.model.job import ProjectId


class ProjectStore(Protocol):
    """Projects, variables and seen refs."""

    async def add_project(self, project: Project) -> Project:
        """Store it with a new id. ConflictError when a project or namespace has the path."""
        ...

    async def load_project(self, project_id: ProjectId) -> Project | None: ...

    async def find_project(self, path: str) -> Project | None: ...

    async def list_projects(self, page: Page, wanted: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        """One page, newest first, and the total."""
        ...

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        """Store and return what `decide` returns. ConflictError when the new path is taken."""
        ...

    async def list_variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        """The project's own variables, ordered by key and environment scope."""
        ...

    async def list_shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        """Variables of the cell and of these groups, ordered by group, key and environment scope."""
        ...

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        """False when it exists and `replace` is off, or is missing and `replace` is on."""
        ...

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool: ...

    async def load_seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        """Full ref name to the last commit that the cell has handled."""
        ...

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """True if the cell has handled this full ref and has not seen its deletion since."""
        ...

    async def put_seen_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        """Mark commits of refs as handled without a pipeline. None forgets a deleted ref."""
        ...
