"""git runs only in the repositories of the cell, even if the process was started inside another repository."""

import os
import subprocess
from pathlib import Path

import pytest

from remuda.cell.git.port import GitError
from remuda.cell.git.program import GitProgram


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the process: a repository that is not the cell's."""
    folder = tmp_path / "outside"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=ours", str(folder)], check=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def git(tmp_path: Path) -> GitProgram:
    root = tmp_path / "repos"
    root.mkdir()
    return GitProgram(root, {"PATH": os.environ["PATH"]})


@pytest.mark.parametrize("repo", [None, ""])
async def test_the_repository_around_the_process_is_not_used(git: GitProgram, outside: Path, repo: str | None) -> None:
    with pytest.raises(GitError):
        await git.run("symbolic-ref", "HEAD", "refs/heads/theirs", repo=repo)
    assert (outside / ".git" / "HEAD").read_text() == "ref: refs/heads/ours\n"
