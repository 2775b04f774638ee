"""The store's interface to Git LFS: objects of projects, how many bytes they have, and file locks."""

from collections.abc import Collection, Mapping, Sequence

from remuda.cell.errors import QuotaExceededError
from remuda.cell.store.ports.database import Database, Lock, Transaction, add_row
from remuda.cell.store.ports.tables import LFS_LOCKS, LFS_OBJECTS, LFS_USAGE, LfsUsage, lfs_path_key
from remuda.cell.values.lfs import LfsLock, LfsObject
from remuda.model.job import ProjectId


class LfsStore:
    """Stores which Git LFS objects each project has, and locks. `lfs_usage` has the total size for each project, so
    that a quota is checked without reading all objects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_object(self, value: LfsObject, quota_bytes: int = 0) -> LfsObject:
        """Store an object of a project and return it; if the project has one with this oid, return that instead. Raises
        QuotaExceededError if all objects of the project would have more than `quota_bytes` bytes (0: no limit)."""

        async def add(rows: Transaction) -> LfsObject:
            key = {"project_id": value.project_id, "oid": value.oid}
            if (stored := await rows.find(LFS_OBJECTS, **key)) is not None:
                return stored
            used = await _count_bytes(rows, value.project_id)
            if quota_bytes and used + value.size > quota_bytes:
                raise QuotaExceededError(
                    f"the quota of a project is {quota_bytes} bytes for LFS objects; this one has {used} bytes"
                )
            await rows.add(LFS_OBJECTS, value)
            await rows.put(LFS_USAGE, LfsUsage(value.project_id, used + value.size))
            return value

        return await self._database.change(add, _lock(value.project_id))

    async def find_objects(self, project_id: ProjectId, oids: Collection[str]) -> Mapping[str, LfsObject]:
        """Return those of the objects `oids` that the project has, by oid."""
        if not oids:
            return {}
        where = ("oid", "in", list(oids))
        return {
            value.oid: value for value in await self._database.find_all(LFS_OBJECTS, where=where, project_id=project_id)
        }

    async def list_objects(self, project_id: ProjectId, *, after: str = "", limit: int) -> Sequence[LfsObject]:
        """Return objects of a project, ordered by oid, from the first one after the oid `after` on."""
        where = ("oid", ">", after)
        return await self._database.find_all(
            LFS_OBJECTS, where=where, order=("oid",), limit=limit, project_id=project_id
        )

    async def remove_object(self, project_id: ProjectId, oid: str) -> bool:
        async def remove(rows: Transaction) -> bool:
            stored = await rows.find(LFS_OBJECTS, project_id=project_id, oid=oid)
            if stored is None:
                return False
            used = await _count_bytes(rows, project_id)
            await rows.remove(LFS_OBJECTS, project_id=project_id, oid=oid)
            await rows.put(LFS_USAGE, LfsUsage(project_id, used - stored.size))
            return True

        return await self._database.change(remove, _lock(project_id))

    async def count_bytes(self, project_id: ProjectId) -> int:
        """Return the size of all objects of a project."""
        usage = await self._database.find(LFS_USAGE, project_id=project_id)
        return usage.bytes if usage else 0

    async def add_lock(self, lock: LfsLock) -> LfsLock:
        """Store a lock with a new id. Raises ConflictError if the file is locked."""
        return await add_row(self._database, LFS_LOCKS, lock, taken="already created lock")

    async def load_lock(self, lock_id: int) -> LfsLock | None:
        return await self._database.find(LFS_LOCKS, id=lock_id)

    async def find_lock(self, project_id: ProjectId, path: str) -> LfsLock | None:
        return await self._database.find(LFS_LOCKS, path_key=lfs_path_key(project_id, path))

    async def list_locks(self, project_id: ProjectId, *, after: int = 0, limit: int) -> Sequence[LfsLock]:
        """Return locks of a project, the oldest first, from the first one after the id `after` on."""
        where = ("id", ">", after)
        return await self._database.find_all(LFS_LOCKS, where=where, order=("id",), limit=limit, project_id=project_id)

    async def remove_lock(self, lock_id: int) -> bool:
        return bool(await self._database.remove(LFS_LOCKS, id=lock_id))

    async def remove_locks(self, project_id: ProjectId) -> None:
        """Remove all locks of a project."""
        await self._database.remove(LFS_LOCKS, project_id=project_id)


def _lock(project_id: ProjectId) -> Lock:
    return Lock("lfs", project_id)


async def _count_bytes(rows: Transaction, project_id: ProjectId) -> int:
    usage = await rows.find_locked(LFS_USAGE, project_id=project_id)
    return usage.bytes if usage else 0
