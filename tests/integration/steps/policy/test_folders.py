"""Folders that the manager creates for jobs whose steps run as another user: owners and access."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.manager_values import a_place

from remuda.lib.clock import SystemClock
from remuda.lib.safe_paths import remove_tree
from remuda.manager.environments.local import LocalEnvironment
from remuda.manager.environments.port import JobPlace
from remuda.manager.errors import EnvironmentLostError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def place_of_another_user(builds: Path) -> JobPlace:
    return a_place(3, run_as="200003", builds_dir=str(builds / "builds"), cache_dir=str(builds / "cache"))


async def test_user_of_a_slot_owns_its_folders(public_folder: Path, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path / "data", clock=SystemClock())
    prepared = await environment.prepare(place_of_another_user(public_folder), "local")
    work = Path(prepared.work_dir)
    (work / "file").touch()
    second = await environment.prepare(place_of_another_user(public_folder), "local")
    assert second == prepared
    owners = {folder: os.stat(folder).st_uid for folder in (work, f"{work}.tmp", prepared.cache_dir)}
    assert set(owners.values()) == {200003}
    assert Path(prepared.cache_dir) == public_folder / "cache/200003"


async def test_error_for_folders_that_the_user_cannot_reach(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    environment = LocalEnvironment(tmp_path / "data", clock=SystemClock())
    with pytest.raises(EnvironmentLostError, match=r"steps run as user 200003, who cannot reach .* builds_dir"):
        await environment.prepare(place_of_another_user(tmp_path), "local")


async def test_a_link_in_a_folder_of_a_job_is_not_followed(public_folder: Path, tmp_path: Path) -> None:
    """One project's path may contain another's, so the other project's user could replace the inner folder."""
    environment = LocalEnvironment(tmp_path / "data", clock=SystemClock())
    work = Path((await environment.prepare(place_of_another_user(public_folder), "local")).work_dir)
    precious = public_folder / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (work / "deeper").symlink_to(precious)
    os.lchown(work / "deeper", 200003, 200003)
    inner = Path(
        (
            await environment.prepare(
                replace(place_of_another_user(public_folder), project="group/project/deeper"), "local"
            )
        ).work_dir
    )
    assert inner == work / "deeper"
    assert not inner.is_symlink()
    assert inner.stat().st_uid == 200003
    assert work.stat().st_uid == 0
    assert (precious.stat().st_uid, (precious / "file").stat().st_uid) == (0, 0)


async def test_a_deep_tree_gets_its_new_owner(public_folder: Path, tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path / "data", clock=SystemClock())
    work = Path((await environment.prepare(place_of_another_user(public_folder), "local")).work_dir)
    folder = os.open(work, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("folder", dir_fd=folder)
        inner = os.open("folder", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    await environment.prepare(replace(place_of_another_user(public_folder), run_as="200004"), "local")
    assert os.fstat(folder).st_uid == os.stat(work).st_uid == 200004
    os.close(folder)
    remove_tree(work / "folder")
