"""Creation of releases."""

from types import SimpleNamespace
from typing import Any

from remuda.cell.blobs.memory import MemoryBlobs
from remuda.cell.pipelines.releases import NewRelease, Releases
from remuda.cell.store.memory.store import MemoryStore
from remuda.lib.clock import VirtualClock
from remuda.testing.builders import SHA, a_project


async def _find_commit(_repo: str, _revision: str) -> str:
    return SHA


async def test_a_release_belongs_to_the_user_who_creates_it() -> None:
    store = MemoryStore()
    project = await store.projects.add_project(a_project())
    projects: Any = SimpleNamespace(repos=SimpleNamespace(commit_of=_find_commit), ref_rules=lambda _project: ())
    releases = Releases(store=store, blobs=MemoryBlobs(), projects=projects, clock=VirtualClock(), public_url="")
    created = await releases.create(project, NewRelease(tag="v1", user_id=7))
    assert created.user_id == 7
    assert await releases.find(project, "v1") == created
