"""A checkout that borrows objects of a local repository has the same result as a fetch.

Refs, tags, FETCH_HEAD and the shallow history are compared.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.git_client import git

from remuda.lib.lent_repository import LENDS
from remuda.stdsteps.checkout import step
from remuda.stdsteps.common.inputs import Inputs

ONE_BRANCH = ["+refs/pipelines/1:refs/pipelines/1", "+refs/heads/main:refs/remotes/origin/main"]
ALL = ["+refs/pipelines/1:refs/pipelines/1", *step.ALL_REFS]


def create_repository(folder: Path, parents: list[list[int]], tags: list[int]) -> tuple[Path, str]:
    """Create a bare repository with one commit per list of parents. Returns its path and the last commit, which is
    on main."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
    blob = folder.parent / "file"
    blob.write_text("text")
    git(folder, "hash-object", "-w", str(blob))
    (folder.parent / "tree").write_text(f"100644 blob {git(folder, 'hash-object', str(blob))}\tfile\n")
    with (folder.parent / "tree").open() as listing:
        tree = subprocess.run(["git", "mktree"], cwd=folder, stdin=listing, check=True, capture_output=True, text=True)
    commits: list[str] = []
    for number, own_parents in enumerate(parents):
        options = [word for parent in own_parents for word in ("-p", commits[parent])]
        commits.append(git(folder, "commit-tree", *options, "-m", f"number {number}", tree.stdout.strip()))
    git(folder, "update-ref", "refs/heads/main", commits[-1])
    git(folder, "update-ref", "refs/heads/topic/other", commits[0])
    git(folder, "update-ref", "refs/pipelines/1", commits[-1])
    for number in tags:
        git(folder, "tag", *(["-a", "-m", "annotated"] if number % 2 else []), f"v{number}", commits[number])
    return folder, commits[-1]


def checkout_and_inspect(
    folder: Path, source: Path, sha: str, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[dict[str, str], Path]:
    """Run the step in a new folder. Returns the state of the repository as git reports it, and the folder."""
    folder.mkdir()
    inputs = {"repo_url": source.as_uri(), "sha": sha, "ref": "main", "refspecs": ONE_BRANCH, "depth": 20, **options}
    with monkeypatch.context() as context:
        context.chdir(folder)
        step.run(Inputs(inputs))
    state = {
        "refs": git(folder, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)"),
        "log": git(folder, "log", "--all", "--format=%H %P", "--topo-order") if options.get("depth") != 1 else "",
        "shallow": git(folder, "rev-parse", "--is-shallow-repository"),
        "fetch head": "".join(sorted((folder / ".git/FETCH_HEAD").read_text().splitlines(keepends=True))),
        "head": git(folder, "rev-parse", "HEAD"),
        "status": git(folder, "status", "--porcelain", "--ignored"),
        "origin": git(folder, "remote", "get-url", "origin"),
        "check": git(folder, "fsck", "--no-dangling", "--connectivity-only"),
    }
    boundary = folder / ".git/shallow"
    state["shallow boundary"] = (
        "".join(sorted(boundary.read_text().splitlines(keepends=True))) if boundary.exists() else ""
    )
    return state, folder


def compare_with_fetch(base: Path, source: Path, sha: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Check out without and with borrowed objects; both must have the same result."""
    fetched, plain = checkout_and_inspect(base / "plain", source, sha, monkeypatch, **options)
    (source / LENDS).touch()
    borrowed, lent = checkout_and_inspect(base / "lent", source, sha, monkeypatch, **options)
    assert borrowed == fetched
    assert not (plain / ".git/objects/info/alternates").exists()
    assert (lent / ".git/objects/info/alternates").exists()
    assert (lent / "file").read_text() == "text"


@st.composite
def create_graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 7))
    return [sorted(draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else [] for number in range(size)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(parents=create_graphs(), depth=st.integers(1, 4), data=st.data())
def test_any_shallow_history_equals_that_of_a_fetch(
    parents: list[list[int]],
    depth: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tags = data.draw(st.lists(st.integers(0, len(parents) - 1), unique=True, max_size=2))
    base = tmp_path_factory.mktemp("history")
    source, sha = create_repository(base / "sources/a b.git", parents, tags)
    compare_with_fetch(base, source, sha, monkeypatch, depth=depth)


def test_without_a_depth_the_history_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = create_repository(tmp_path / "sources/a.git", [[], [0], [0], [1, 2]], [0, 1])
    compare_with_fetch(tmp_path, source, sha, monkeypatch, depth=0, refspecs=ALL)


def test_packed_and_loose_refs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = create_repository(tmp_path / "sources/a.git", [[], [0], [1]], [0, 1])
    git(source, "pack-refs", "--all")
    git(source, "tag", "-a", "-m", "tag of a tag", "v8", "v1")
    git(source, "update-ref", "refs/heads/main", f"{sha}~1")
    (source / "refs/heads/main.lock").write_text(f"{sha}\n")
    compare_with_fetch(tmp_path, source, sha, monkeypatch, refspecs=ALL)


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 0},
        {"fetch_flags": ["--no-tags", "--quiet"]},
        {"refspecs": ["refs/heads/main"]},
    ],
)
def test_unsupported_options_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    source, sha = create_repository(tmp_path / "sources/a.git", [[], [0]], [0])
    (source / LENDS).touch()
    state, folder = checkout_and_inspect(tmp_path / "work", source, sha, monkeypatch, **options)
    assert state["head"] == sha
    assert not (folder / ".git/objects/info/alternates").exists()


def test_a_shallow_repository_is_fetched_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = create_repository(tmp_path / "sources/a.git", [[], [0]], [])
    (source / LENDS).touch()
    (source / "shallow").write_text(f"{sha}\n")
    state, folder = checkout_and_inspect(tmp_path / "work", source, sha, monkeypatch)
    assert state["head"] == sha
    assert not (folder / ".git/objects/info/alternates").exists()


def test_a_second_job_reuses_the_borrowed_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source, sha = create_repository(tmp_path / "sources/a.git", [[], [0]], [])
    (source / LENDS).touch()
    _, folder = checkout_and_inspect(tmp_path / "work", source, sha, monkeypatch)
    (folder / "file").write_text("changed")
    (folder / "leftover").write_text("by the first job")
    assert "Skipping Git fetch" not in capfd.readouterr().out
    inputs = {"repo_url": source.as_uri(), "sha": sha, "ref": "main", "refspecs": ONE_BRANCH, "depth": 20}
    monkeypatch.chdir(folder)
    step.run(Inputs(inputs))
    assert "Skipping Git fetch" in capfd.readouterr().out
    assert git(folder, "status", "--porcelain", "--ignored") == ""
    assert not (folder / "leftover").exists()
