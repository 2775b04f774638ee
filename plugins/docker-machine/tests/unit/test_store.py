import os
from pathlib import Path

import pytest

from remuda.fleeting import InstanceState
from remuda_plugin_docker_machine.store import Draft, Machine, Store

CREATING, RUNNING, DELETING = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def add(store: Store, name: str = "m", **rest: str) -> Draft:
    [draft] = store.add([Machine(name=name, **rest)], max_size=10)  # type: ignore[arg-type]
    return draft


def state(store: Store, name: str = "m") -> InstanceState | None:
    machine = store.look(name)
    return machine.state if machine else None


@pytest.mark.parametrize(
    ("code", "is_held", "is_deleting", "expected"),
    [
        (None, True, False, CREATING),
        (None, False, False, DELETING),
        ("0", False, False, RUNNING),
        ("0", True, False, RUNNING),
        ("1", False, False, DELETING),
        ("124", False, False, DELETING),
        ("0", False, True, DELETING),
        (None, True, True, DELETING),
    ],
)
def test_states(store: Store, code: str | None, is_held: bool, is_deleting: bool, expected: InstanceState) -> None:
    draft = add(store)
    if code is not None:
        (store.place("m") / "create.exit").write_text(f"{code}\n")
    if is_deleting:
        store.mark_deleting("m")
    if not is_held:
        os.close(draft.lock)
    assert state(store) is expected
    if is_held:
        os.close(draft.lock)


def test_only_one_process_has_the_lock(store: Store) -> None:
    draft = add(store)
    assert store.take_lock("m") is None
    os.close(draft.lock)
    lock = store.take_lock("m")
    assert lock is not None
    os.close(lock)
    with pytest.raises(FileNotFoundError):
        store.take_lock("nobody")


def test_each_group_has_its_own_limit(store: Store) -> None:
    drafts = store.add([Machine(name=f"a{number}", owner="a") for number in range(5)], max_size=3)
    drafts += store.add([Machine(name="b0", owner="b")], max_size=1)
    drafts += store.add([Machine(name="b1", owner="b", group="other")], max_size=1)
    assert [draft.machine.name for draft in drafts] == ["a0", "a1", "a2", "b0", "b1"]
    assert store.add([Machine(name="b2", owner="b")], max_size=1) == []
    for draft in drafts:
        os.close(draft.lock)


def test_prepare_clears_half_added_and_half_removed_machines(store: Store) -> None:
    for name in (".new-a", ".gone-b"):
        (store.root / "remuda" / name).mkdir()
    os.close(add(store).lock)
    store.prepare()
    assert sorted(path.name for path in (store.root / "remuda").iterdir()) == [".lock", "m"]
    store.remove("m")
    store.remove("m")
    assert store.look_all() == []


@pytest.mark.parametrize("name", ["", ".", "..", ".lock", "a/b", "../machines/x", "nobody"])
def test_invalid_names_are_no_machines(store: Store, name: str) -> None:
    assert store.look(name) is None


def test_a_broken_record_has_no_owner(store: Store) -> None:
    os.close(add(store, owner="me").lock)
    (store.place("m") / "machine.json").write_text("{")
    assert [seen.machine for seen in store.look_all()] == [Machine(name="m")]
