"""Checks which other projects a pipeline may use: those of its organization to which the user who started it has
access.

A pipeline may use no project of another organization, even if an administrator started it, because somebody else may
have written its file. A separate module, because trigger jobs, includes of files and needs of artifacts use it."""

from remuda.cell.core.access.rights import active_members, project_level
from remuda.cell.store.ports import Store
from remuda.cell.values import Project


async def level_of(store: Store, user_id: int, project: Project, now: float) -> int | None:
    """Return a user's access level in a project; None if it is deleted, or the user is blocked or may not see it."""
    user = await store.people.load_user(user_id)
    if user is None or user.state != "active" or project.removed_at is not None:
        return None
    return project_level(user, active_members(await store.people.list_memberships(user_id), now), project)


async def find_reachable_project(
    store: Store, user_id: int, near: Project, path: str, level: int, now: float
) -> Project | None:
    """Find the project with this path in the organization of the project `near`. Returns None if there is none, or the
    user's access level in it is below `level`."""
    project = await store.projects.find_project(path)
    if project is None or project.organization_id != near.organization_id:
        return None
    return project if (await level_of(store, user_id, project, now) or 0) >= level else None
