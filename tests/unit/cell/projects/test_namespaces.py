"""Groups: nesting, allowed paths, and the migration of projects of older releases into groups."""

import pytest
from msgspec.structs import replace

from remuda.cell.errors import ConflictError, InvalidError
from remuda.cell.projects.namespaces import Namespaces, list_all_projects
from remuda.cell.store.memory.store import MemoryStore
from remuda.cell.values.people import FIRST_NAMESPACE
from remuda.lib.clock import VirtualClock
from remuda.testing.builders import a_project


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def namespaces(store: MemoryStore) -> Namespaces:
    return Namespaces(store, VirtualClock())


async def test_a_group_knows_its_parent_groups(namespaces: Namespaces) -> None:
    acme = await namespaces.create("acme", name="Acme", organization_id=7)
    tools = await namespaces.create("tools", name="Tools", parent=acme)
    deep = await namespaces.create("deep", name="Deep", parent=tools)
    assert (deep.path, deep.parent_id, deep.above, deep.organization_id) == (
        "acme/tools/deep", tools.id, (tools.id, acme.id), 7,
    )  # fmt: skip
    assert deep.group_ids == (deep.id, tools.id, acme.id)
    assert [namespace.path for namespace in await namespaces.inside(acme)] == ["acme/tools/deep", "acme/tools"]


@pytest.mark.parametrize("path", ["a/b", "", "-a", "api", "x.git", "a" * 300])
async def test_invalid_group_paths(namespaces: Namespaces, path: str) -> None:
    with pytest.raises(InvalidError):
        await namespaces.create(path, name="x")


async def test_a_users_own_namespace_holds_no_groups(namespaces: Namespaces) -> None:
    with pytest.raises(InvalidError):
        await namespaces.create("x", name="x", parent=FIRST_NAMESPACE)
    with pytest.raises(InvalidError):
        await namespaces.ensure("root/x")


async def test_missing_groups_of_a_path_are_created_once(namespaces: Namespaces, store: MemoryStore) -> None:
    group = await namespaces.ensure("acme/tools", 7)
    assert await namespaces.ensure("ACME/Tools", 3) == group
    assert group.organization_id == 7
    await store.projects.add_project(a_project(path="acme/shop"))
    with pytest.raises(ConflictError):
        await namespaces.ensure("acme/shop/inside")


async def test_projects_of_an_older_release_are_put_into_groups(namespaces: Namespaces, store: MemoryStore) -> None:
    for path in ("root/own", "acme/shop", "acme/tools/x"):
        await store.projects.add_project(a_project(path=path))
    await namespaces.adopt_projects()
    projects = {project.path: project for project in await list_all_projects(store)}
    assert (projects["root/own"].namespace_id, projects["root/own"].group_ids) == (1, ())
    acme, tools = projects["acme/shop"].group_ids[0], projects["acme/tools/x"].group_ids[0]
    assert projects["acme/tools/x"].group_ids == (tools, acme)
    moved = projects["acme/shop"]
    await store.projects.change_project(moved.id, lambda row: replace(row, namespace_id=1))
    await namespaces.adopt_projects()  # a second run changes nothing
    assert (await store.projects.load_project(moved.id)) == replace(moved, namespace_id=1)
