"""A push or a commit over the API that changes a file which somebody else has locked with Git LFS is refused."""

from pathlib import Path

import pytest
from tests.support.cells.lfs_client import Lfs, basic
from tests.support.cells.people import Person, add_member, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone

from remuda.cell.values.people import Level

LOCKED = "is locked with Git LFS by somebody else"


@pytest.fixture
def lfs(cell: ServedCell) -> Lfs:
    """The administrator's LFS client of the project `root/app`, which has two files."""
    cell.new_project("app", "", **{"art/a.psd": "a", "art/b.psd": "b"})
    return Lfs(cell, "root/app", basic(cell.token))


@pytest.fixture
def dora(cell: ServedCell, lfs: Lfs) -> Person:
    person = create_person(cell, "dora")
    add_member(cell, "projects/1", person, Level.MAINTAINER)
    return person


@pytest.fixture
def work(cell: ServedCell, dora: Person, tmp_path: Path) -> Clone:
    work = Clone(tmp_path / "work")
    url = cell.url.replace("://", f"://oauth2:{dora.token}@")
    work.run("clone", "--quiet", f"{url}/root/app.git", ".")
    return work


def lock(lfs: Lfs, path: str) -> str:
    answer = lfs.send("POST", "info/lfs/locks", {"path": path})
    assert answer.status == 201, answer
    return str(answer.json()["lock"]["id"])


def test_a_push_of_a_locked_file(lfs: Lfs, dora: Person, work: Clone) -> None:
    number = lock(lfs, "art/a.psd")
    work.commit(**{"art/b.psd": "changed"})
    work.push("main")
    work.commit(**{"art/a.psd": "changed"})
    work.commit(**{"art/b.psd": "again"})
    for target in ("main", "main:side", "main:refs/merge-requests/1/head"):
        refused = work.run("push", "origin", target, ok=False)
        assert f"art/a.psd {LOCKED}" in refused.stderr
    assert lfs.send("POST", f"info/lfs/locks/{number}/unlock", {}).status == 200
    work.push("main")
    lock(Lfs(lfs.cell, "root/app", basic(dora.token)), "art/a.psd")
    work.commit(**{"art/a.psd": "own lock"})
    work.push("main")


@pytest.mark.parametrize("path", ["art/*.psd", ":(top)x", "a b", 'quo"te', "ü\\n", "-x"])
def test_the_path_of_a_lock_is_no_pattern(lfs: Lfs, work: Clone, path: str) -> None:
    lock(lfs, path)
    work.commit(**{"art/a.psd": "changed"})
    work.push("main")
    work.commit(**{path: "new"})
    refused = work.run("push", "origin", "main", ok=False)
    assert LOCKED in refused.stderr


def test_the_lock_of_a_folder_is_for_all_its_files(lfs: Lfs, dora: Person, work: Clone) -> None:
    lock(lfs, "art")
    work.commit(artful="new")
    work.push("main")
    work.commit(**{"art/a.psd": "changed"})
    assert f"art/a.psd {LOCKED}" in work.run("push", "origin", "main", ok=False).stderr
    action = {"action": "update", "file_path": "art/a.psd", "content": "x"}
    body = {"branch": "main", "commit_message": "change", "actions": [action]}
    assert dora.api("POST", "/projects/1/repository/commits", body).status == 403


def test_a_merge_that_changes_a_locked_file(lfs: Lfs, work: Clone) -> None:
    lock(lfs, "art/a.psd")
    work.run("checkout", "--quiet", "-b", "side")
    work.commit(side="side")
    work.run("checkout", "--quiet", "main")
    work.commit(main="main")
    work.run("merge", "--quiet", "--no-commit", "side")
    work.commit(**{"art/a.psd": "changed in the merge"})
    assert f"art/a.psd {LOCKED}" in work.run("push", "origin", "main", ok=False).stderr


def test_commits_that_the_server_has_are_not_checked(lfs: Lfs, work: Clone) -> None:
    work.commit(**{"art/a.psd": "changed"})
    work.push("main")
    lock(lfs, "art/a.psd")
    work.push("main:side")
    work.run("push", "--quiet", "origin", ":side")


def test_many_locks(lfs: Lfs, work: Clone) -> None:
    long = "/".join(["x" * 200] * 12)
    for number in range(120):
        lock(lfs, f"{long}/{number}")
    lock(lfs, "art/a.psd")
    work.commit(**{"art/b.psd": "changed"})
    work.push("main")
    work.commit(**{"art/a.psd": "changed"})
    assert f"art/a.psd {LOCKED}" in work.run("push", "origin", "main", ok=False).stderr
    repos = lfs.cell.settings.data / "repos"
    assert not list(repos.glob("*/*.git/locks-*")), "the list for the hook is removed"


def test_a_commit_over_the_api(lfs: Lfs, dora: Person) -> None:
    lock(lfs, "art/a.psd")

    def commit(*actions: dict[str, str]) -> tuple[int, str]:
        body = {"branch": "main", "commit_message": "change", "actions": list(actions)}
        answer = dora.api("POST", "/projects/1/repository/commits", body)
        return answer.status, str(answer.json().get("message"))

    locked = [
        {"action": "update", "file_path": "art/a.psd", "content": "x"},
        {"action": "delete", "file_path": "art/a.psd"},
        {"action": "move", "file_path": "art/c.psd", "previous_path": "art/a.psd"},
    ]
    for action in locked:
        status, message = commit(action)
        assert (status, f"art/a.psd {LOCKED}" in message) == (403, True), action
    assert commit({"action": "update", "file_path": "art/b.psd", "content": "x"})[0] == 201
    assert dora.api("PUT", "/projects/1", {"lfs_enabled": False}).status == 200
    assert commit(locked[0])[0] == 201, "without LFS its locks do not count"


def test_a_tag_brings_in_no_change_of_a_locked_file(lfs: Lfs, work: Clone) -> None:
    lock(lfs, "art/a.psd")
    work.run("tag", "old", "HEAD")
    work.run("push", "origin", "old")
    blob = work.run("rev-parse", "HEAD:art/b.psd").stdout.strip()
    work.run("push", "origin", f"{blob}:refs/tags/blob")
    work.commit(**{"art/a.psd": "changed"})
    work.run("tag", "-m", "annotated", "new", "HEAD")
    refused = work.run("push", "origin", "new", ok=False)
    assert f"art/a.psd {LOCKED}" in refused.stderr
