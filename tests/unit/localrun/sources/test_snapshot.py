import os
from pathlib import Path

import pytest
from tests.support.git_client import Clone

from remuda.lib.exits import BadInputError, CommandError
from remuda.localrun.sources.repository import Repository
from remuda.localrun.sources.snapshot import Snapshot, push_environment, take
from remuda.localrun.sources.worktree import facts_of
from remuda.localrun.upload import refspecs_of

PIPELINE = b"job:\n  script: [echo]\n"


def git(folder: Path, *words: str) -> str:
    return Clone(folder).run(*words).stdout


def snapshot_of(
    folder: Path,
    own: Path,
    *,
    event: str = "push",
    ref: str | None = None,
    tag: str | None = None,
    compared: tuple[str, ...] = (),
) -> Snapshot:
    return take(folder, Repository.at(folder), facts_of(folder, event=event, ref=ref, tag=tag), own, compared=compared)


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

    snapshot = snapshot_of(repository, tmp_path / "own.git")

    assert files_of(snapshot) == {
        ".gitignore": "*.log\n",
        ".gitlab-ci.yml": PIPELINE.decode(),
        "added file.txt": "added",
        "forced.log": "tracked although ignored",
        "kept.txt": "new",
    }
    assert snapshot.ref == "refs/heads/trunk"


@pytest.mark.parametrize("kind", [":kept.txt", "^{tree}", ""])
def test_replaced_objects_are_ignored(repository: Path, tmp_path: Path, kind: str) -> None:
    """A push does not transfer replaced objects, so a run uses the original ones, as a pipeline would."""
    (repository / "kept.txt").write_text("other")
    git(repository, "commit", "--quiet", "-am", "Other")
    git(
        repository,
        "replace",
        *(git(repository, "rev-parse", f"{commit}{kind}").strip() for commit in ("HEAD~", "HEAD")),
    )
    git(repository, "--no-replace-objects", "reset", "--quiet", "--hard", "HEAD~")
    git_repository = Repository.at(repository)
    assert git_repository is not None
    entry = git_repository.tree(git(repository, "rev-parse", "HEAD").strip())["kept.txt"]
    assert git_repository.blob(entry.id) == b"old"
    snapshot = snapshot_of(repository, tmp_path / "own.git")
    assert files_of(snapshot)["kept.txt"] == "old"
    assert facts_of(repository).predefined["CI_COMMIT_MESSAGE"].strip() == "First"


def test_compared_commits_are_pushed_as_temporary_branches() -> None:
    refs = {"refs/heads/main": "1", "refs/compared/22": "22", "refs/tags/v1": "3"}
    pushed, removed = refspecs_of(refs)
    assert pushed == ["1:refs/heads/main", "22:refs/heads/remuda-compared/22", "3:refs/tags/v1"]
    assert removed == [":refs/heads/remuda-compared/22"]


def test_the_repository_is_left_exactly_as_it_was(repository: Path, tmp_path: Path) -> None:
    (repository / "kept.txt").write_text("new")
    before = state_of(repository)
    snapshot_of(repository, tmp_path / "own.git")
    assert state_of(repository) == before


def test_a_sub_folder_is_snapshotted_alone_under_the_rules_of_its_repository(repository: Path, tmp_path: Path) -> None:
    sub = repository / "sub"
    sub.mkdir()
    (sub / "a.txt").write_text("a")
    (sub / "b.log").write_text("ignored by the repository's rules")
    snapshot = snapshot_of(sub, tmp_path / "own.git")
    assert files_of(snapshot) == {"a.txt": "a"}


def test_a_plain_folder_needs_no_repository(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / ".gitignore").write_text("secret\n")
    (folder / "secret").write_text("ignored")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")

    snapshot = snapshot_of(folder, tmp_path / "own.git")

    assert set(files_of(snapshot)) == {".gitignore", "link", "run.sh"}
    modes = git(snapshot.git_dir, "ls-tree", snapshot.sha)
    assert "100755" in modes
    assert "120000" in modes
    assert snapshot.ref == "refs/heads/main"
    assert not (folder / ".git").exists()


def test_the_users_git_settings_apply_to_files(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "core.autocrlf", "true")
    git(repository, "config", "core.fileMode", "false")
    (repository / "kept.txt").write_bytes(b"one\r\ntwo\r\n")
    (repository / "kept.txt").chmod(0o755)
    snapshot = snapshot_of(repository, tmp_path / "own.git")
    assert files_of(snapshot)["kept.txt"] == "one\ntwo\n"
    assert git(snapshot.git_dir, "ls-tree", snapshot.sha, "kept.txt").startswith("100644 ")


def test_a_nested_repository_is_left_out(repository: Path, tmp_path: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "file").write_text("x")
    snapshot = snapshot_of(repository, tmp_path / "own.git")
    assert not [name for name in files_of(snapshot) if name.startswith("inner")]


def test_a_repository_without_commits_is_bad_input_with_the_fix(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(BadInputError, match=r"no commits yet.*git commit"):
        snapshot_of(tmp_path / "empty", tmp_path / "own.git")


def test_a_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="git was not found"):
        snapshot_of(tmp_path, tmp_path / "own.git")


def test_surrounding_git_hook_has_no_effect(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    before = state_of(repository)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a").write_text("a")
    snapshot = snapshot_of(plain, tmp_path / "own.git")
    assert set(files_of(snapshot)) == {"a"}
    assert state_of(repository) == before


def test_git_errors_are_reported(repository: Path, tmp_path: Path) -> None:
    (repository / ".git" / "index").write_text("damaged")
    with pytest.raises(CommandError, match="cannot take a snapshot"):
        snapshot_of(repository, tmp_path / "own.git")


def test_the_push_keeps_credentials_out_of_the_command_line(tmp_path: Path) -> None:
    environment = push_environment(tmp_path, "Basic c2VjcmV0")
    assert environment["GIT_CONFIG_KEY_0"] == "http.extraHeader"
    assert environment["GIT_CONFIG_VALUE_0"] == "Authorization: Basic c2VjcmV0"


def test_without_changes_the_snapshot_is_the_commit_itself(repository: Path, tmp_path: Path) -> None:
    assert snapshot_of(repository, tmp_path / "own.git").sha == git(repository, "rev-parse", "HEAD").strip()


def test_changes_become_a_reproducible_commit_on_top(repository: Path, tmp_path: Path) -> None:
    (repository / "kept.txt").write_text("new")
    first, second = (snapshot_of(repository, tmp_path / name) for name in ("a.git", "b.git"))
    assert first.sha == second.sha
    log_line = git(first.git_dir, "log", "--format=%P|%an|%s", "-1", first.sha).strip()
    assert log_line == f"{git(repository, 'rev-parse', 'HEAD').strip()}|A. Person|First"


def test_a_change_in_the_same_moment_is_not_missed(repository: Path, tmp_path: Path) -> None:
    """Same size and same time: git reads the file only because its index is not newer than the file."""
    index, file = repository / ".git" / "index", repository / "kept.txt"
    stat = file.stat()
    os.utime(index, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    file.write_text("new")
    os.utime(file, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert files_of(snapshot_of(repository, tmp_path / "own.git"))["kept.txt"] == "new"


def clone_with_a_branch(repository: Path, folder: Path) -> str:
    """Clone the repository, with a branch that is one commit ahead of the server. Returns the server's commit."""
    git(repository.parent, "clone", "--quiet", str(repository), str(folder))
    git(folder, "checkout", "--quiet", "-b", "topic", "--track", "origin/trunk")
    (folder / "mine.txt").write_text("mine")
    git(folder, "add", "mine.txt")
    git(folder, "commit", "--quiet", "-m", "Mine")
    return git(repository, "rev-parse", "HEAD").strip()


def changed_since(snapshot: Snapshot, commit: str | None) -> set[str]:
    assert commit
    return set(git(snapshot.git_dir, "diff", "--name-only", commit, snapshot.sha).split())


def test_a_snapshot_has_the_refs_that_rules_and_jobs_use(repository: Path, tmp_path: Path) -> None:
    git(repository, "tag", "-a", "-m", "one", "v1.0")
    git(repository, "branch", "other")
    folder = tmp_path / "clone"
    base = clone_with_a_branch(repository, folder)
    (folder / "kept.txt").write_text("new")
    snapshot = snapshot_of(folder, tmp_path / "own.git", compared=("other", "refs/heads/trunk", "nowhere"))
    assert snapshot.since == base
    assert changed_since(snapshot, base) == {"mine.txt", "kept.txt"}
    assert snapshot.refs == {
        "refs/heads/topic": snapshot.sha,
        "refs/heads/trunk": base,
        "refs/heads/other": base,
        f"refs/compared/{base}": base,
        "refs/tags/v1.0": git(repository, "rev-parse", "v1.0").strip(),
    }
    alternates = (snapshot.git_dir / "objects" / "info" / "alternates").read_text()
    assert alternates == f"{folder / '.git' / 'objects'}\n"


@pytest.mark.parametrize(
    ("event", "branch", "tag", "ref"),
    [
        ("merge_request", None, None, "refs/merge-requests/1/head"),
        ("tag", None, "v2", "refs/tags/v2"),
        ("push", "another", None, "refs/heads/another"),
    ],
)
def test_the_event_decides_the_ref(
    repository: Path, tmp_path: Path, event: str, branch: str | None, tag: str | None, ref: str
) -> None:
    folder = tmp_path / "clone"
    base = clone_with_a_branch(repository, folder)
    snapshot = snapshot_of(folder, tmp_path / "own.git", event=event, ref=branch, tag=tag)
    assert (snapshot.ref, snapshot.refs[ref]) == (ref, snapshot.sha)
    assert snapshot.refs["refs/heads/trunk"] == base
    assert snapshot.since == (base if event == "merge_request" else None)


def test_a_sub_folder_is_compared_with_that_sub_folder(repository: Path, tmp_path: Path) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / "a.txt").write_text("a")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "Sub")
    folder = tmp_path / "clone"
    clone_with_a_branch(repository, folder)
    (folder / "sub" / "b.txt").write_text("b")
    snapshot = snapshot_of(folder / "sub", tmp_path / "own.git", compared=("trunk",))
    assert set(files_of(snapshot)) == {"a.txt", "b.txt"}
    assert changed_since(snapshot, snapshot.since) == {"b.txt"}
    base = git(snapshot.git_dir, "merge-base", snapshot.sha, snapshot.refs["refs/heads/trunk"]).strip()
    assert changed_since(snapshot, base) == {"b.txt"}


def test_all_files_of_a_new_sub_folder_have_changed(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    clone_with_a_branch(repository, folder)
    (folder / "sub").mkdir()
    (folder / "sub" / "b.txt").write_text("b")
    snapshot = snapshot_of(folder / "sub", tmp_path / "own.git")
    assert changed_since(snapshot, snapshot.since) == {"b.txt"}


def test_the_history_of_a_shallow_clone_ends_where_the_clone_does(repository: Path, tmp_path: Path) -> None:
    (repository / "more.txt").write_text("more")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "More")
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(folder))
    (folder / "mine.txt").write_text("mine")
    snapshot = snapshot_of(folder, tmp_path / "own.git")
    assert changed_since(snapshot, snapshot.since) == {"mine.txt"}
    assert git(snapshot.git_dir, "rev-list", "--count", snapshot.sha).strip() == "2"


def test_a_partial_clone_reports_that_it_cannot_compare(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", f"file://{repository}", str(folder))
    (folder / "mine.txt").write_text("mine")
    snapshot = snapshot_of(folder, tmp_path / "own.git")
    assert snapshot.since is None
    assert "partial clone" in snapshot.remark
    assert "kept.txt" in files_of(snapshot)


@pytest.mark.parametrize("attributes", [".gitattributes", "deep/.gitattributes", ".git/info/attributes"])
def test_files_with_a_clean_filter_are_stored_as_on_disk(repository: Path, tmp_path: Path, attributes: str) -> None:
    git(repository, "config", "filter.up.clean", "tr a-z A-Z")
    git(repository, "config", "filter.up.smudge", "tr A-Z a-z")
    (repository / "deep").mkdir()
    (repository / attributes).write_text("*.big filter=up\n")
    (repository / "deep" / "a.big").write_text("large")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "Large")
    assert git(repository, "show", "HEAD:deep/a.big") == "LARGE"
    assert files_of(snapshot_of(repository, tmp_path / "own.git"))["deep/a.big"] == "large"
    assert files_of(snapshot_of(repository / "deep", tmp_path / "deep.git"))["a.big"] == "large"
