"""The real git-lfs pushes large files to a cell, clones and locks them; a job checks them out with its job token."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from tests.support.cells.people import add_member, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone
from tests.support.git_lfs_program import require_git_lfs
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cell.values.people import Level

CONTENT = b"large\n" * 500_000
OID = hashlib.sha256(CONTENT).hexdigest()
PIPELINE = """
fetched:
  script: [sha256sum art/large.bin]
pointers:
  variables: {GIT_LFS_SKIP_SMUDGE: "1"}
  script: [cat art/large.bin]
"""


def address(cell: ServedCell, token: str, path: str = "root/app") -> str:
    return f"{cell.url.replace('://', f'://oauth2:{token}@')}/{path}.git"


@pytest.fixture(autouse=True)
def _git_lfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{require_git_lfs().parent}:{os.environ['PATH']}")


@pytest.fixture
def work(cell: ServedCell, tmp_path: Path) -> Clone:
    """A working copy of an empty project `root/app` in which git-lfs stores `*.bin`."""
    cell.new_project("app")
    work = Clone(tmp_path / "work")
    work.run("init", "--quiet", "-b", "main")
    work.run("remote", "add", "origin", address(cell, cell.token))
    work.run("lfs", "install", "--local")
    work.run("lfs", "track", "*.bin")
    work.run("lfs", "track", "--lockable", "*.psd")
    (work.folder / "art").mkdir()
    (work.folder / "art/large.bin").write_bytes(CONTENT)
    return work


def clone_of(cell: ServedCell, folder: Path, token: str) -> Clone:
    clone = Clone(folder)
    clone.run("init", "--quiet", "-b", "main")
    clone.run("lfs", "install", "--local")
    clone.run("remote", "add", "origin", address(cell, token))
    clone.run("pull", "--quiet", "origin", "main")
    return clone


def test_push_clone_and_pull(cell: ServedCell, work: Clone, tmp_path: Path) -> None:
    work.commit(README="hello")
    work.push("main")
    assert OID in work.git("show", "main:art/large.bin"), "git has the pointer"
    clone = clone_of(cell, tmp_path / "clone", cell.token)
    assert (clone.folder / "art/large.bin").read_bytes() == CONTENT
    (work.folder / "art/second.bin").write_bytes(b"second")
    (work.folder / "art/empty.bin").write_bytes(b"")
    work.commit()
    work.push("main")
    clone.run("pull", "--quiet", "origin", "main")
    assert (clone.folder / "art/second.bin").read_bytes() == b"second"
    clone.run("lfs", "fsck")
    work.run("lfs", "push", "--all", "origin")


def test_a_first_push_creates_the_project(cell: ServedCell, work: Clone, tmp_path: Path) -> None:
    work.run("remote", "set-url", "origin", address(cell, cell.token, "root/created"))
    work.commit()
    work.push("main")
    assert cell.api("GET", "/projects/root%2Fcreated").status == 200


def test_who_may_not_push_cannot_upload(cell: ServedCell, work: Clone) -> None:
    work.commit()
    work.push("main")
    reporter = create_person(cell, "rita")
    add_member(cell, "projects/1", reporter, Level.REPORTER)
    work.run("remote", "set-url", "origin", address(cell, reporter.token))
    (work.folder / "art/large.bin").write_bytes(b"changed")
    work.commit()
    refused = work.run("lfs", "push", "--all", "origin", ok=False)
    assert "Your level in root/app is too low" in refused.stderr


def test_a_limit_is_explained(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", lfs_limit_bytes=1000) as cell:
        cell.new_project("app")
        work = Clone(tmp_path / "work")
        work.run("init", "--quiet", "-b", "main")
        work.run("remote", "add", "origin", address(cell, cell.token))
        work.run("lfs", "install", "--local")
        work.run("lfs", "track", "*.bin")
        (work.folder / "a.bin").write_bytes(b"x" * 1001)
        work.commit()
        refused = work.run("push", "origin", "main", ok=False)
        assert "the limit of the cell is 1000 bytes (lfs_limit_bytes)" in refused.stderr


def test_locks_are_honoured_on_push(cell: ServedCell, work: Clone, tmp_path: Path) -> None:
    work.commit(**{"art/a.psd": "one"})
    work.push("main")
    developer = create_person(cell, "dora")
    add_member(cell, "projects/1", developer, Level.MAINTAINER)
    other = clone_of(cell, tmp_path / "other", developer.token)
    other.run("config", "lfs.locksverify", "true")
    work.run("lfs", "lock", "art/a.psd")
    assert "art/a.psd" in other.git("lfs", "locks")
    taken = other.run("lfs", "lock", "art/a.psd", ok=False)
    assert "already created lock" in taken.stderr
    (other.folder / "art/a.psd").chmod(0o644)
    other.commit(**{"art/a.psd": "two"})
    refused = other.run("push", "origin", "main", ok=False)
    assert "art/a.psd" in refused.stdout
    assert "Cannot update locked files" in refused.stderr
    work.run("lfs", "unlock", "art/a.psd")
    other.push("main")
    work.run("pull", "--quiet", "origin", "main")
    work.run("lfs", "lock", "art/a.psd")
    other.run("lfs", "unlock", "--force", "art/a.psd")
    assert other.git("lfs", "locks") == ""


async def test_a_job_checks_out_lfs_files(cell: ServedCell, cell_harness: ManagerHarness, work: Clone) -> None:
    cell_harness.write_config(concurrent=2)
    work.commit(**{".gitlab-ci.yml": PIPELINE})
    await asyncio.to_thread(work.push, "main")
    async with cell_harness.manager():
        jobs = await cell.wait_for_jobs()
    assert {name: job["status"] for name, job in jobs.items()} == {"fetched": "success", "pointers": "success"}
    assert OID in jobs["fetched"]["log"]
    assert "Fetching files stored with Git LFS" in jobs["fetched"]["log"]
    assert "version https://git-lfs.github.com/spec/v1" in jobs["pointers"]["log"]
