"""Checks which other projects a pipeline may use: those in its organization to which the user who started it has
access.

A pipeline stays in its organization even if an administrator started it, because its file may be somebody else's.
`remuda.cell.core.access.rights` has the rules for users. Trigger jobs, includes of other projects' files and needs of
other projects' artifacts use it, so it stands alone.
"""

from remuda.cell.core.access.rights import active_members, project_level
from remuda.cell.store.ports import Store
from remuda.cell.values import Project


async def level_of(store: Store, user_id: int, project: Project, now: float) -> int | None:
    """Return a user's access level in a project, or None if the user may not see the project, is blocked, or the
    project is deleted.
    """
    user = await store.people.load_user(user_id)
    if user is None or user.state != "active" or project.removed_at is not None:
        return None
    return project_level(user, active_members(await store.people.list_memberships(user_id), now), project)


async def find_reachable_project(
    store: Store, user_id: int, near: Project, path: str, level: int, now: float
) -> Project | None:
    """Return the project with this path, if it is in the same organization as `near` and the user has at least the
    access level `level` in it; else None.
    """
    project = await store.projects.find_project(path)
    if project is None or project.organization_id != near.organization_id:
        return None
    return project if (await level_of(store, user_id, project, now) or 0) >= level else None
