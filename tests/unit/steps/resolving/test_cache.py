import json
from pathlib import Path

import pytest

from remuda.lib.clock import VirtualClock
from remuda.steps.resolving.cache import FORGET_SECONDS, LEAST_AGE_SECONDS, Package, PackageCache

NOW = 2_000_000_000.0
"""Later than the modification times of new files."""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


def create_cache(folder: Path, clock: VirtualClock, limit_bytes: int = 100) -> PackageCache:
    return PackageCache(folder, clock=clock, limit_bytes=limit_bytes)


def add(cache: PackageCache, key: str, text: str = "x") -> Package:
    with cache.make_folder() as folder:
        (folder / "files").mkdir()
        (folder / "files/func.yml").write_text(text)
        return cache.add(key, folder / "files")


def list_keys(folder: Path) -> set[str]:
    return {path.name for path in (folder / "packages").iterdir()}


def test_an_added_package_is_found(tmp_path: Path, clock: VirtualClock) -> None:
    cache = create_cache(tmp_path, clock)
    assert cache.find("a") is None
    added = add(cache, "a")
    assert cache.find("a") == added == create_cache(tmp_path, clock).find("a")
    assert (added.root / "func.yml").read_text() == "x"
    assert add(cache, "a") == added, "the second package is discarded"
    assert not list((tmp_path / "new").iterdir())


def test_the_least_recently_used_package_is_removed_when_the_cache_is_full(tmp_path: Path, clock: VirtualClock) -> None:
    cache = create_cache(tmp_path, clock, limit_bytes=100)
    for key in ("a", "b", "c"):
        add(cache, key, key * 40)
        clock.jump(10)
    assert list_keys(tmp_path) == {"a", "b", "c"}, "all packages may be in use"
    clock.jump(LEAST_AGE_SECONDS)
    assert cache.find("a") is not None
    add(cache, "d", "d")
    assert list_keys(tmp_path) == {"a", "c", "d"}, "b is the least recently used, and there is room for the others"
    assert cache.find("b") is None


@pytest.mark.parametrize("damage", ["file", "entry", "more"])
def test_a_damaged_entry_is_removed(tmp_path: Path, clock: VirtualClock, damage: str) -> None:
    cache = create_cache(tmp_path, clock)
    added = add(cache, "a")
    added.root.chmod(0o700)
    match damage:
        case "file":
            (added.root / "func.yml").write_text("y")
        case "entry":
            (added.root.parent / "entry.json").write_text("{")
        case "more":
            (added.root / "more").touch()
    assert cache.find("a") is None
    assert not list_keys(tmp_path)


def test_a_changed_digest_is_noticed_by_the_process_that_added_the_package(tmp_path: Path, clock: VirtualClock) -> None:
    cache = create_cache(tmp_path, clock)
    added = add(cache, "a")
    (added.root.parent / "entry.json").write_text(json.dumps({"digest": "sha256:0", "bytes": 1}))
    assert cache.find("a") is None


def test_names_are_remembered_for_a_limited_time(tmp_path: Path, clock: VirtualClock) -> None:
    cache = create_cache(tmp_path, clock)
    assert cache.recall("main") == {}
    cache.remember("main", {"commit": "1"})
    assert cache.recall("main") == {"commit": "1"}
    (note,) = (tmp_path / "known").iterdir()
    note.write_text("[")
    assert cache.recall("main") == {}
    clock.jump(FORGET_SECONDS)
    add(cache, "a")
    assert not list((tmp_path / "known").iterdir())


def test_folders_of_a_killed_process_are_removed(tmp_path: Path, clock: VirtualClock) -> None:
    cache = create_cache(tmp_path, clock)
    cache.prepare()
    (tmp_path / "new/leftover/files").mkdir(parents=True)
    (tmp_path / "new/leftover/files").chmod(0o555)
    add(cache, "a")
    assert not list((tmp_path / "new").iterdir())


def test_a_failure_leaves_no_folder(tmp_path: Path, clock: VirtualClock) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyError

    with pytest.raises(KeyError), create_cache(tmp_path, clock).make_folder() as folder:
        fail(folder)
    assert not list((tmp_path / "new").iterdir())
