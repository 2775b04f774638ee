import os
import subprocess
from pathlib import Path

import pytest

from remuda.cli.exits import BadInputError, CommandError
from remuda.cli.snapshot import Snapshot, push_environment, take

PIPELINE = b"job:\n  script: [echo]\n"


def git(folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = clean | {
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
    }
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True)
    return done.stdout.decode()


def files_of(snapshot: Snapshot) -> dict[str, str]:
    names = git(snapshot.git_dir, "ls-tree", "-r", "-z", "--name-only", snapshot.sha).split("\0")
    return {name: git(snapshot.git_dir, "show", f"{snapshot.sha}:{name}") for name in names if name}


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with its time and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    (folder / ".gitlab-ci.yml").write_bytes(PIPELINE)
    (folder / "kept.txt").write_text("old")
    (folder / "gone.txt").write_text("gone")
    (folder / "forced.log").write_text("tracked although ignored")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "--quiet", "-m", "First")
    return folder


def test_a_snapshot_has_uncommitted_changes_and_no_ignored_files(repository: Path, tmp_path: Path) -> None:
    (repository / "kept.txt").write_text("new")
    (repository / "gone.txt").unlink()
    (repository / "added file.txt").write_text("added")
    (repository / "noise.log").write_text("ignored")

    snapshot = take(repository, PIPELINE, tmp_path / "own.git")

    assert files_of(snapshot) == {
        ".gitignore": "*.log\n",
        ".gitlab-ci.yml": PIPELINE.decode(),
        "added file.txt": "added",
        "forced.log": "tracked although ignored",
        "kept.txt": "new",
    }
    assert snapshot.branch == "trunk"


def test_the_repository_is_left_exactly_as_it_was(repository: Path, tmp_path: Path) -> None:
    (repository / "kept.txt").write_text("new")
    before = state_of(repository)
    take(repository, PIPELINE, tmp_path / "own.git")
    assert state_of(repository) == before


def test_a_sub_folder_is_snapshotted_by_itself_under_the_rules_of_its_repository(
    repository: Path, tmp_path: Path
) -> None:
    sub = repository / "sub"
    sub.mkdir()
    (sub / "a.txt").write_text("a")
    (sub / "b.log").write_text("ignored by the repository's rules")
    snapshot = take(sub, PIPELINE, tmp_path / "own.git")
    assert files_of(snapshot) == {".gitlab-ci.yml": PIPELINE.decode(), "a.txt": "a"}


def test_a_plain_folder_needs_no_repository(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / ".gitignore").write_text("secret\n")
    (folder / "secret").write_text("ignored")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")

    snapshot = take(folder, PIPELINE, tmp_path / "own.git")

    assert set(files_of(snapshot)) == {".gitignore", ".gitlab-ci.yml", "link", "run.sh"}
    modes = git(snapshot.git_dir, "ls-tree", snapshot.sha)
    assert "100755" in modes
    assert "120000" in modes
    assert snapshot.branch == "main"
    assert not (folder / ".git").exists()


def test_the_given_pipeline_text_wins_over_the_file(repository: Path, tmp_path: Path) -> None:
    snapshot = take(repository, b"other: {script: [true]}\n", tmp_path / "own.git")
    assert files_of(snapshot)[".gitlab-ci.yml"] == "other: {script: [true]}\n"


def test_a_repository_inside_is_left_out(repository: Path, tmp_path: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "file").write_text("x")
    snapshot = take(repository, PIPELINE, tmp_path / "own.git")
    assert not [name for name in files_of(snapshot) if name.startswith("inner")]


def test_a_repository_without_commits_is_bad_input_with_the_fix(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(BadInputError, match=r"no commits yet.*git commit"):
        take(tmp_path / "empty", PIPELINE, tmp_path / "own.git")


def test_a_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="git was not found"):
        take(tmp_path, PIPELINE, tmp_path / "own.git")


def test_a_surrounding_hook_does_not_lead_git_astray(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    before = state_of(repository)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a").write_text("a")
    snapshot = take(plain, PIPELINE, tmp_path / "own.git")
    assert set(files_of(snapshot)) == {".gitlab-ci.yml", "a"}
    assert state_of(repository) == before


def test_what_git_complains_of_is_passed_on(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="git init: "):
        take(repository, PIPELINE, tmp_path / "file" / "own.git")


def test_the_push_keeps_credentials_out_of_the_command_line(repository: Path, tmp_path: Path) -> None:
    snapshot = take(repository, PIPELINE, tmp_path / "own.git")
    environment = push_environment(snapshot, "Basic c2VjcmV0")
    assert environment["GIT_CONFIG_KEY_0"] == "http.extraHeader"
    assert environment["GIT_CONFIG_VALUE_0"] == "Authorization: Basic c2VjcmV0"
