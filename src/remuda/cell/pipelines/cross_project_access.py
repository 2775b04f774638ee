"""What a pipeline may reach beyond its own project: what the person may who started it, in its own organization.

Decided here: who is asked, and that a pipeline stays in its organization even if an administrator started it, because
its file may be somebody else's. All other rules are in `core.rights`. Trigger jobs, includes of other projects' files
and needs of other projects' artifacts ask here.
"""

from remuda.cell.core.access.rights import active_members, project_level
from remuda.cell.store.ports import Store
from remuda.cell.values import Project


async def level_of(store: Store, user_id: int, project: Project, now: float) -> int | None:
    """A user's level in a project; None when the user may not even know of it."""
    user = await store.people.load_user(user_id)
    if user is None or user.state != "active" or project.removed_at is not None:
        return None
    return project_level(user, active_members(await store.people.list_memberships(user_id), now), project)


async def find_reachable_project(
    store: Store, user_id: int, near: Project, path: str, level: int, now: float
) -> Project | None:
    """The project with this path, if it is of the same organization as `near` and the user has this level in it."""
    project = await store.projects.find_project(path)
    if project is None or project.organization_id != near.organization_id:
        return None
    return project if (await level_of(store, user_id, project, now) or 0) >= level else None
