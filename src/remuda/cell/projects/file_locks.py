"""Which files of a project a user may not change, because others have locked them with Git LFS."""

from collections.abc import Collection, Iterable

from remuda.cell.store.ports import Store
from remuda.cell.values import Project

_BATCH = 1000


async def list_locked_paths(store: Store, project: Project, user_id: int) -> tuple[str, ...]:
    """Return the files and folders that other users than this one have locked; none if the project has no Git LFS."""
    paths: list[str] = []
    after = 0
    while project.lfs_enabled and (locks := await store.lfs.list_locks(project.id, after=after, limit=_BATCH)):
        paths += [lock.path for lock in locks if lock.user_id != user_id]
        after = locks[-1].id
    return tuple(paths)


def find_locked(changed: Iterable[str], locked: Collection[str]) -> str | None:
    """Return the first of the changed paths that is locked, by itself or with a folder above it; None if none is."""
    names = frozenset(locked)
    for path in changed if names else ():
        parts = path.split("/")
        if any("/".join(parts[:count]) in names for count in range(1, len(parts) + 1)):
            return path
    return None
