"""Contract tests of the store: Git LFS objects of projects, how many bytes they have, and file locks."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, QuotaExceededError
from remuda.cell.store.ports import Store
from remuda.cell.values import Project
from remuda.cell.values.lfs import LfsLock, LfsObject
from remuda.model.job import ProjectId
from remuda.testing.builders import NOW, a_project

OID = "ab" * 32


def an_object(project: Project, **changes: Any) -> LfsObject:
    values = {"project_id": project.id, "oid": OID, "size": 10, "blob": "lfs/0/1/a", "created_at": NOW}
    return LfsObject(**{**values, **changes})


def a_lock(project: Project, **changes: Any) -> LfsLock:
    values = {"id": 0, "project_id": project.id, "path": "art/a.psd", "user_id": 1, "locked_at": NOW}
    return LfsLock(**{**values, **changes})


@pytest.fixture
async def other(store: Store, project: Project) -> Project:
    return await store.projects.add_project(a_project(path="acme/other"))


class TestObjects:
    async def test_a_project_has_only_its_own_objects(self, store: Store, project: Project, other: Project) -> None:
        added = an_object(project)
        assert await store.lfs.add_object(added) == added
        assert await store.lfs.find_objects(project.id, [OID, "cd" * 32]) == {OID: added}
        assert await store.lfs.find_objects(project.id, []) == {}
        assert await store.lfs.find_objects(other.id, [OID]) == {}

    async def test_the_first_of_two_uploads_stays(self, store: Store, project: Project) -> None:
        first, second = an_object(project), an_object(project, blob="lfs/0/1/b")
        results = await asyncio.gather(store.lfs.add_object(first), store.lfs.add_object(second))
        assert results[0] == results[1]
        assert await store.lfs.find_objects(project.id, [OID]) == {OID: results[0]}
        assert await store.lfs.count_bytes(project.id) == 10

    async def test_quota(self, store: Store, project: Project, other: Project) -> None:
        await store.lfs.add_object(an_object(project), quota_bytes=15)
        await store.lfs.add_object(an_object(other, size=15), quota_bytes=15)
        with pytest.raises(QuotaExceededError, match=r"15 bytes.* 10 bytes"):
            await store.lfs.add_object(an_object(project, oid="cd" * 32, size=6), quota_bytes=15)
        await store.lfs.add_object(an_object(project, oid="ef" * 32, size=5), quota_bytes=15)
        assert await store.lfs.add_object(an_object(project), quota_bytes=1) == an_object(project), "it is there"
        assert await store.lfs.count_bytes(project.id) == 15
        assert await store.lfs.count_bytes(ProjectId(999)) == 0

    async def test_list_and_remove(self, store: Store, project: Project, other: Project) -> None:
        objects = [an_object(project, oid=f"{number:064x}") for number in range(3)]
        for value in (*objects, an_object(other, oid=f"{1:064x}")):
            await store.lfs.add_object(value)
        assert await store.lfs.list_objects(project.id, limit=2) == objects[:2]
        assert await store.lfs.list_objects(project.id, after=objects[1].oid, limit=2) == objects[2:]
        assert await store.lfs.remove_object(project.id, objects[0].oid)
        assert not await store.lfs.remove_object(project.id, objects[0].oid)
        assert await store.lfs.list_objects(project.id, limit=9) == objects[1:]
        assert await store.lfs.count_bytes(project.id) == 20
        assert await store.lfs.count_bytes(other.id) == 10


class TestLocks:
    async def test_a_path_is_locked_once_in_a_project(self, store: Store, project: Project, other: Project) -> None:
        first = await store.lfs.add_lock(a_lock(project))
        with pytest.raises(ConflictError):
            await store.lfs.add_lock(a_lock(project, user_id=2))
        elsewhere = await store.lfs.add_lock(a_lock(other, path="x" * 4000))
        assert await store.lfs.find_lock(project.id, "art/a.psd") == first
        assert await store.lfs.find_lock(project.id, "art/A.psd") is None
        assert await store.lfs.find_lock(other.id, "x" * 4000) == elsewhere
        assert await store.lfs.load_lock(first.id) == first

    async def test_list_and_remove(self, store: Store, project: Project, other: Project) -> None:
        locks = [await store.lfs.add_lock(a_lock(project, path=f"art/{number}")) for number in range(3)]
        await store.lfs.add_lock(a_lock(other))
        assert await store.lfs.list_locks(project.id, limit=2) == locks[:2]
        assert await store.lfs.list_locks(project.id, after=locks[1].id, limit=2) == locks[2:]
        assert await store.lfs.remove_lock(locks[0].id)
        assert not await store.lfs.remove_lock(locks[0].id)
        again = await store.lfs.add_lock(replace(locks[0], user_id=2))
        assert again.id > locks[2].id
        await store.lfs.remove_locks(project.id)
        assert await store.lfs.list_locks(project.id, limit=9) == []
        assert len(await store.lfs.list_locks(other.id, limit=9)) == 1
