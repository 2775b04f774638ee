"""Packages of steps in a job's folder: links to the files in the cache."""

import os
import stat
from pathlib import Path

import pytest

from remuda.lib.safe_paths import remove_tree
from remuda.steps.job_files import job_packages
from remuda.steps.job_files.job_packages import (
    list_without_packages,
    packages_folder,
    remove_packages,
    share_package,
)
from remuda.steps.process.step_files import INSERTED_EXCHANGE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a package in the cache."""
    root = tmp_path / "cache/git-1/files"
    (root / "steps/one").mkdir(parents=True)
    for name, mode in (("func.yml", 0o644), ("run", 0o755), ("private", 0o600), ("shared", 0o666)):
        (root / "steps/one" / name).write_text(name)
        (root / "steps/one" / name).chmod(mode)
    (root / "link").symlink_to("steps/one/run")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return packages_folder(tmp_path / "job")


def test_files_are_links_that_every_user_can_read(root: Path, folder: Path) -> None:
    files = share_package(root, folder)
    step = files / "steps/one"
    assert (step / "func.yml").samefile(root / "steps/one/func.yml")
    assert (step / "run").samefile(root / "steps/one/run")
    assert os.readlink(files / "link") == "steps/one/run"
    assert [stat.S_IMODE((step / name).stat().st_mode) for name in ("private", "shared")] == [0o444, 0o444]
    assert not (step / "private").samefile(root / "steps/one/private")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, files.parent, files, step)]
    assert modes == [0o711, 0o755, 0o555, 0o555]


def test_package_is_shared_once(root: Path, folder: Path) -> None:
    files = share_package(root, folder)
    before = files.stat().st_ino
    assert share_package(root, folder) == files
    assert files.stat().st_ino == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_nothing_is_left_of_a_package_that_cannot_be_shared(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        share_package(tmp_path / "cache/git-2/files", folder)
    assert list(folder.iterdir()) == []
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_file_that_cannot_be_linked_is_copied(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr(os, "link", refuse)
    step = share_package(root, folder) / "steps/one"
    assert (step / "run").read_text() == "run"
    assert stat.S_IMODE((step / "run").stat().st_mode) == 0o555


def test_the_job_can_be_removed_and_the_cache_stays(root: Path, folder: Path) -> None:
    share_package(root, folder)
    remove_tree(folder.parent)
    assert (root / "steps/one/run").read_text() == "run"


def test_inserted_steps_have_another_folder(tmp_path: Path) -> None:
    assert packages_folder(tmp_path, INSERTED_EXCHANGE) != packages_folder(tmp_path)


def test_packages_do_not_count_as_files_of_the_job(root: Path, folder: Path) -> None:
    share_package(root, folder)
    (folder.parent / "exchange").mkdir()
    (folder.parent / "log").touch()
    assert {path.name for path in list_without_packages(folder.parent)} == {"exchange", "log"}


def test_a_package_that_is_being_shared_does_not_count_either(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    link = os.link

    def look_and_link(source: str, target: str) -> None:
        seen.append(list_without_packages(folder.parent))
        link(source, target)

    monkeypatch.setattr(os, "link", look_and_link)
    share_package(root, folder)
    assert seen == [[], []]


def test_what_a_killed_agent_had_begun_to_share_is_removed_with_the_packages(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_package(root, folder)
    with monkeypatch.context() as dying:
        dying.setattr(job_packages, "protect", lambda path: 1 / 0)
        dying.setattr(job_packages, "remove_tree", lambda *_, **__: None)
        with pytest.raises(ZeroDivisionError):
            share_package(root, packages_folder(folder.parent, INSERTED_EXCHANGE))
    assert list(folder.parent.rglob("func.yml"))
    remove_packages(folder.parent)
    assert not list(folder.parent.iterdir())
