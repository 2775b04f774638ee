"""Free disk space as reported by the local environment."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from remuda.lib.clock import VirtualClock
from remuda.manager.config.values import RunnerConfig
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.errors import EnvironmentTemporaryError


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that simulates disks; it takes the free space in MiB for each mounted folder."""

    def mount(**rooms: int) -> None:
        by_place = {tmp_path / name: free for name, free in rooms.items()}
        for place in by_place:
            place.mkdir(exist_ok=True)

        def look(path: Path) -> SimpleNamespace:
            if not path.exists():
                raise FileNotFoundError(2, "No such file or directory", str(path))
            mounted = next(place for place in (path, *path.parents) if place in by_place)
            return SimpleNamespace(free=by_place[mounted] << 20)

        monkeypatch.setattr(shutil, "disk_usage", look)

    return mount


async def test_the_disk_with_the_least_free_space_counts(tmp_path: Path, disks: Callable[..., None]) -> None:
    disks(jobs=900, small=7, caches=3)
    environment = LocalEnvironment(tmp_path / "jobs", clock=VirtualClock())
    assert (await environment.usage()).disk_free_bytes == 900 << 20
    folders = [str(tmp_path / "small" / "not" / "yet")]
    assert (await environment.usage(folders)).disk_free_bytes == 7 << 20
    assert (await environment.usage([*folders, str(tmp_path / "caches")])).disk_free_bytes == 3 << 20
    assert (await environment.usage(["builds"])).disk_free_bytes == 900 << 20


async def test_a_missing_job_folder_is_an_error(tmp_path: Path, disks: Callable[..., None]) -> None:
    disks(small=7)
    with pytest.raises(EnvironmentTemporaryError, match=r"cannot read the free space of .*jobs"):
        await LocalEnvironment(tmp_path / "jobs", clock=VirtualClock()).usage()


def test_job_folders_of_a_runner() -> None:
    shell, custom = (
        RunnerConfig(
            url="http://127.0.0.1:1", token="glrt-1", executor=executor, builds_dir="/mnt/small", cache_dir="caches"
        )
        for executor in ("shell", "custom")
    )
    assert shell.job_folders == ["/mnt/small", "caches"]
    assert custom.job_folders == []
