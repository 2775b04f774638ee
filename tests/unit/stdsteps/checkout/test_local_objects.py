"""What is borrowed is what a fetch brings: the same refs, tags, FETCH_HEAD and cut through the history."""

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


def history(folder: Path, parents: list[list[int]], tags: list[int]) -> tuple[Path, str]:
    """A repository with commits of the given parents, the last of them on main; its address and that commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=main")
    blob = folder.parent / "file"
    blob.write_text("text")
    git(folder, "hash-object", "-w", str(blob))
    (folder.parent / "tree").write_text(f"100644 blob {git(folder, 'hash-object', str(blob))}\tfile\n")
    with (folder.parent / "tree").open() as listing:
        tree = subprocess.run(["git", "mktree"], cwd=folder, stdin=listing, check=True, capture_output=True, text=True)
    commits: list[str] = []
    for number, own in enumerate(parents):
        options = [word for parent in own for word in ("-p", commits[parent])]
        commits.append(git(folder, "commit-tree", *options, "-m", f"number {number}", tree.stdout.strip()))
    git(folder, "update-ref", "refs/heads/main", commits[-1])
    git(folder, "update-ref", "refs/heads/topic/other", commits[0])
    git(folder, "update-ref", "refs/pipelines/1", commits[-1])
    for number in tags:
        git(folder, "tag", *(["-a", "-m", "told"] if number % 2 else []), f"v{number}", commits[number])
    return folder, commits[-1]


def checked_out(
    folder: Path, source: Path, sha: str, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> tuple[dict[str, str], Path]:
    """What a job sees of the repository that it gets."""
    folder.mkdir()
    inputs = {"repo_url": source.as_uri(), "sha": sha, "ref": "main", "refspecs": ONE_BRANCH, "depth": 20, **more}
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        step.run(Inputs(inputs))
    seen = {
        "refs": git(folder, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)"),
        "log": git(folder, "log", "--all", "--format=%H %P", "--topo-order") if more.get("depth") != 1 else "",
        "shallow": git(folder, "rev-parse", "--is-shallow-repository"),
        "fetch head": "".join(sorted((folder / ".git/FETCH_HEAD").read_text().splitlines(keepends=True))),
        "head": git(folder, "rev-parse", "HEAD"),
        "status": git(folder, "status", "--porcelain", "--ignored"),
        "origin": git(folder, "remote", "get-url", "origin"),
        "check": git(folder, "fsck", "--no-dangling", "--connectivity-only"),
    }
    cut = folder / ".git/shallow"
    seen["cut"] = "".join(sorted(cut.read_text().splitlines(keepends=True))) if cut.exists() else ""
    return seen, folder


def compare(place: Path, source: Path, sha: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    fetched, plain = checked_out(place / "plain", source, sha, monkeypatch, **more)
    (source / LENDS).touch()
    borrowed, lent = checked_out(place / "lent", source, sha, monkeypatch, **more)
    assert borrowed == fetched
    assert not (plain / ".git/objects/info/alternates").exists()
    assert (lent / ".git/objects/info/alternates").exists()
    assert (lent / "file").read_text() == "text"


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 7))
    return [sorted(draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else [] for number in range(size)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(parents=graphs(), depth=st.integers(1, 4), data=st.data())
def test_any_history_is_cut_as_git_cuts_it(
    parents: list[list[int]],
    depth: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tags = data.draw(st.lists(st.integers(0, len(parents) - 1), unique=True, max_size=2))
    place = tmp_path_factory.mktemp("history")
    source, sha = history(place / "sources/a b.git", parents, tags)
    compare(place, source, sha, monkeypatch, depth=depth)


def test_without_a_limit_everything_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = history(tmp_path / "sources/a.git", [[], [0], [0], [1, 2]], [0, 1])
    compare(tmp_path, source, sha, monkeypatch, depth=0, refspecs=ALL)


def test_refs_are_found_wherever_git_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = history(tmp_path / "sources/a.git", [[], [0], [1]], [0, 1])
    git(source, "pack-refs", "--all")
    git(source, "tag", "-a", "-m", "of another", "v8", "v1")
    git(source, "update-ref", "refs/heads/main", f"{sha}~1")
    (source / "refs/heads/main.lock").write_text(f"{sha}\n")
    compare(tmp_path, source, sha, monkeypatch, refspecs=ALL)


@pytest.mark.parametrize(
    "more",
    [
        {"depth": 0},
        {"fetch_flags": ["--no-tags", "--quiet"]},
        {"refspecs": ["refs/heads/main"]},
    ],
)
def test_what_only_git_knows_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    source, sha = history(tmp_path / "sources/a.git", [[], [0]], [0])
    (source / LENDS).touch()
    seen, folder = checked_out(tmp_path / "work", source, sha, monkeypatch, **more)
    assert seen["head"] == sha
    assert not (folder / ".git/objects/info/alternates").exists()


def test_a_repository_that_lends_what_it_lost_is_fetched_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sha = history(tmp_path / "sources/a.git", [[], [0]], [])
    (source / LENDS).touch()
    (source / "shallow").write_text(f"{sha}\n")
    seen, folder = checked_out(tmp_path / "work", source, sha, monkeypatch)
    assert seen["head"] == sha
    assert not (folder / ".git/objects/info/alternates").exists()


def test_a_second_job_goes_on_with_what_was_borrowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source, sha = history(tmp_path / "sources/a.git", [[], [0]], [])
    (source / LENDS).touch()
    _, folder = checked_out(tmp_path / "work", source, sha, monkeypatch)
    (folder / "file").write_text("changed")
    (folder / "left").write_text("by the first job")
    assert "Skipping Git fetch" not in capfd.readouterr().out
    inputs = {"repo_url": source.as_uri(), "sha": sha, "ref": "main", "refspecs": ONE_BRANCH, "depth": 20}
    monkeypatch.chdir(folder)
    step.run(Inputs(inputs))
    assert "Skipping Git fetch" in capfd.readouterr().out
    assert git(folder, "status", "--porcelain", "--ignored") == ""
    assert not (folder / "left").exists()
