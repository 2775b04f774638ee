import os
from pathlib import Path

import pytest

from remuda.fleeting import InstanceState
from remuda_plugin_local.store import Machine, Seen, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "group")
    store.prepare()
    return store


def add(store: Store, count: int = 1, max_size: int = 10) -> dict[str, int]:
    """Add machines; return their locks by name."""
    drafts = store.add(count, group="g", owner="me", now=5.0, max_size=max_size)
    return {draft.machine.id: draft.lock for draft in drafts}


@pytest.mark.parametrize(
    ("is_alive", "is_up", "is_deleting", "expected"),
    [
        (True, False, False, InstanceState.CREATING),
        (True, True, False, InstanceState.RUNNING),
        (True, True, True, InstanceState.DELETING),
        (True, False, True, InstanceState.DELETING),
        (False, True, False, InstanceState.DELETED),
        (False, False, False, InstanceState.DELETED),
        (False, False, True, InstanceState.DELETING),
    ],
)
def test_states(is_alive: bool, is_up: bool, is_deleting: bool, expected: InstanceState) -> None:
    seen = Seen(machine=Machine(id="g-1"), is_alive=is_alive, is_up=is_up, is_deleting=is_deleting)
    assert seen.state is expected


def test_a_machine_lives_as_long_as_its_lock_is_held(store: Store) -> None:
    [(name, lock)] = add(store).items()
    assert store.take_lock(name) is None
    assert [seen.state for seen in store.look_all()] == [InstanceState.CREATING]
    duplicate = os.dup(lock)
    os.close(lock)
    store.mark(name, "up")
    assert [seen.state for seen in store.look_all()] == [InstanceState.RUNNING]
    os.close(duplicate)
    seen = store.look(name)
    assert seen is not None
    assert (seen.state, seen.machine) == (InstanceState.DELETED, Machine(id=name, owner="me", created_at=5.0))


def test_dead_machines_do_not_count_for_max_size(store: Store) -> None:
    locks = add(store, 5, max_size=3)
    assert len(locks) == 3
    assert add(store, 1, max_size=3) == {}
    for lock in locks.values():
        os.close(lock)
    new_locks = add(store, 2, max_size=3)
    assert len(new_locks) == 2
    for lock in new_locks.values():
        os.close(lock)


def test_a_removed_machine_has_no_files_and_cannot_be_marked(store: Store) -> None:
    [(name, lock)] = add(store).items()
    (store.place(name) / "disk" / "deep").mkdir(parents=True)
    os.close(lock)
    second_lock = store.take_lock(name)
    assert second_lock is not None
    store.remove(name)
    os.close(second_lock)
    store.mark(name, "up")
    assert (store.look(name), store.look_all()) == (None, [])
    with pytest.raises(FileNotFoundError):
        store.take_lock(name)
    assert os.listdir(store.folder / "machines") == []


def test_prepare_clears_half_added_and_half_removed_machines(store: Store) -> None:
    machines = store.folder / "machines"
    [(name, lock)] = add(store).items()
    (machines / ".new-g-1").mkdir()
    (machines / ".gone-g-2" / "disk").mkdir(parents=True)
    (machines / ".gone-g-2" / "lock").touch()
    store.place(name).rename(machines / ".gone-g-3")
    store.prepare()
    assert os.listdir(machines) == [".gone-g-3"], "a process holds the lock of this machine"
    os.close(lock)
    store.prepare()
    assert os.listdir(machines) == []


@pytest.mark.parametrize("name", ["..", ".", "../machines", ".new-g-1", "", "nobody"])
def test_invalid_names_are_no_machines(store: Store, name: str) -> None:
    assert store.look(name) is None


def test_process_and_address_are_read(store: Store) -> None:
    [(name, lock)] = add(store).items()
    os.close(lock)
    assert store.process(name) is None
    (store.place(name) / "pid").write_text("12 345\n")
    (store.place(name) / "address").write_text("10.250.0.9\n")
    process, seen = store.process(name), store.look(name)
    assert process is not None
    assert seen is not None
    assert (process.pid, process.start_ticks, seen.address) == (12, 345, "10.250.0.9")
