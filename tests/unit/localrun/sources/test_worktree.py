import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.worktree import facts_of
from remuda.pipeline import SourceProblem
from remuda.pipeline.facts import NO_SHA

MakeRepo = Callable[..., Any]


@pytest.fixture
def clone(make_repo: MakeRepo, tmp_path: Path) -> Any:
    """A clone that is up to date with its origin."""
    origin = make_repo("origin", kept="1", gone="1", sub__inner="1")
    repo = type(origin)(tmp_path / "clone")
    origin.git("clone", "--quiet", str(origin.folder), str(repo.folder))
    return repo


def blob(text: str) -> str:
    return hashlib.sha1(f"blob {len(text)}\0{text}".encode()).hexdigest()


def changed_files(folder: Path, compare_to: str | None = None, **options: Any) -> Any:
    changes = facts_of(folder, **options).changes_since(compare_to)
    return sorted(changes) if isinstance(changes, frozenset) else changes


def test_a_push_of_the_branch_that_is_checked_out(make_repo: MakeRepo) -> None:
    repo = make_repo(branch="trunk")
    sha = repo.commit("Title\n\nSome\ntext")
    facts = facts_of(repo.folder, variables={"A": "1"})
    variables = facts.pipeline_variables()
    assert (facts.ref, facts.source, facts.sha, facts.default_branch) == ("trunk", "push", sha, "trunk")
    assert facts.variables == {"A": "1"}
    expected = {
        "CI_COMMIT_BRANCH": "trunk",
        "CI_COMMIT_SHA": sha,
        "CI_COMMIT_TITLE": "Title",
        "CI_COMMIT_MESSAGE": "Title\n\nSome\ntext",
        "CI_COMMIT_DESCRIPTION": "Some\ntext",
        "CI_COMMIT_AUTHOR": "A. Person <person@example.com>",
        "CI_COMMIT_BEFORE_SHA": NO_SHA,
        "CI_COMMIT_REF_PROTECTED": "true",
        "CI_PROJECT_PATH": "root/shop",
        "CI_PROJECT_NAME": "shop",
    }
    assert expected.items() <= variables.items()
    assert variables["CI_COMMIT_TIMESTAMP"].startswith("2026-01-02T03:04:05")


def test_the_ref_option_selects_another_branch(make_repo: MakeRepo) -> None:
    facts = facts_of(make_repo().folder, ref="refs/heads/feature/x")
    assert facts.pipeline_variables()["CI_COMMIT_REF_SLUG"] == "feature-x"
    assert facts.predefined["CI_COMMIT_REF_PROTECTED"] == "false"


def test_a_tag(make_repo: MakeRepo) -> None:
    repo = make_repo()
    repo.git("tag", "-m", "Release one", "v1")
    repo.commit()
    forms: list[dict[str, Any]] = [{"tag": "v1"}, {"ref": "refs/tags/v1"}, {"event": "tag", "ref": "v1"}]
    for options in forms:
        facts = facts_of(repo.folder, **options)
        variables = facts.pipeline_variables()
        assert facts.is_tag
        assert (variables["CI_COMMIT_TAG"], variables["CI_PIPELINE_SOURCE"]) == ("v1", "push")
        assert variables["CI_COMMIT_TAG_MESSAGE"] == "Release one"
        assert "CI_COMMIT_BRANCH" not in variables
        assert facts.changes_since(None) is None
    with pytest.raises(BadInputError, match="no tag points at HEAD"):
        facts_of(repo.folder, event="tag")
    repo.git("tag", "v2")
    assert facts_of(repo.folder, event="tag").ref == "v2"


@pytest.mark.parametrize("event", ["merge_request", "merge_request_event"])
def test_a_merge_request(make_repo: MakeRepo, event: str) -> None:
    repo = make_repo(old="1")
    base = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "--quiet", "-b", "feature")
    repo.write(new="1")
    repo.commit("Add it")
    repo.write(uncommitted="1")
    variables = facts_of(repo.folder, event=event).pipeline_variables()
    assert variables["CI_PIPELINE_SOURCE"] == "merge_request_event"
    assert variables["CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"] == "feature"
    assert variables["CI_MERGE_REQUEST_TARGET_BRANCH_NAME"] == "main"
    assert variables["CI_MERGE_REQUEST_DIFF_BASE_SHA"] == base
    assert variables["CI_MERGE_REQUEST_TITLE"] == "Add it"
    assert "CI_COMMIT_BRANCH" not in variables
    assert changed_files(repo.folder, event=event) == ["new", "uncommitted"]
    assert changed_files(repo.folder, event=event, variables={"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "feature"}) == [
        "uncommitted"
    ]


@pytest.mark.parametrize("event", ["web", "api", "schedule", "trigger", "pipeline", "parent_pipeline"])
def test_other_events_have_no_changes(clone: Any, event: str) -> None:
    facts = facts_of(clone.folder, event=event)
    assert facts.source == event
    assert facts.changes_since(None) is None


def test_what_a_push_would_change(clone: Any) -> None:
    before = clone.git("rev-parse", "HEAD")
    assert changed_files(clone.folder) is None, "with nothing to push, everything counts as changed"
    clone.write(committed="1")
    clone.commit()
    clone.write(kept="2", staged="1", untracked="1", ignored="1")
    clone.put(".gitignore", "ignored\n")
    clone.git("add", "staged")
    (clone.folder / "gone").unlink()
    expected = [".gitignore", "committed", "gone", "kept", "staged", "untracked"]
    assert changed_files(clone.folder) == expected
    assert facts_of(clone.folder).predefined["CI_COMMIT_BEFORE_SHA"] == before


def test_a_new_branch_has_no_changes(clone: Any) -> None:
    clone.git("checkout", "--quiet", "-b", "fresh")
    assert changed_files(clone.folder) is None
    clone.write(new="1")
    assert changed_files(clone.folder) is None
    assert changed_files(clone.folder, ref="main") == ["new"]


def test_changes_since_a_ref(clone: Any) -> None:
    clone.git("tag", "start")
    clone.git("checkout", "--quiet", "-b", "fresh")
    clone.write(new="1")
    sha = clone.commit()
    clone.write(newer="1")
    for ref in ("main", "refs/heads/main", "origin/main", "start"):
        assert changed_files(clone.folder, ref) == ["new", "newer"]
    assert changed_files(clone.folder, sha) == ["newer"]


def test_a_branch_is_preferred_to_a_tag_of_the_same_name(make_repo: MakeRepo) -> None:
    repo = make_repo(first="1")
    repo.git("branch", "both")
    repo.write(new="1")
    repo.commit()
    repo.git("tag", "both")
    repo.write(newer="1")
    repo.commit()
    assert changed_files(repo.folder, "both") == ["new", "newer"]
    assert changed_files(repo.folder, "refs/tags/both") == ["newer"]


@pytest.mark.parametrize("ref", ["nowhere", "--output=x", "main~0", "a\0b", "\udcff", ""])
def test_an_invalid_ref(clone: Any, ref: str) -> None:
    result = changed_files(clone.folder, ref)
    assert isinstance(result, SourceProblem)
    assert result.suggestion


def test_a_ref_of_another_history(clone: Any) -> None:
    clone.git("checkout", "--quiet", "--orphan", "other")
    clone.commit()
    result = changed_files(clone.folder, "main")
    assert isinstance(result, SourceProblem)
    assert "no common history" in result.reason


def test_files_have_the_ids_that_git_would_give_them(make_repo: MakeRepo) -> None:
    repo = make_repo(same="1", edited="1", gone="1")
    repo.write(edited="two", fresh="three", ignored="x")
    repo.put(".gitignore", "ignored")
    (repo.folder / "gone").unlink()
    (repo.folder / "link").symlink_to("same")
    files = facts_of(repo.folder).files
    assert files is not None
    assert dict(files) == {
        ".gitignore": blob("ignored"),
        "same": blob("1"),
        "edited": blob("two"),
        "fresh": blob("three"),
        "link": blob("same"),
    }
    assert len(files) == 5
    assert "same" in files
    assert "gone" not in files


def test_a_sub_folder_is_treated_as_a_project(clone: Any) -> None:
    clone.write(outside="1", sub__inner="2")
    clone.put("sub/.gitlab-ci.yml", "")
    facts = facts_of(clone.folder / "sub")
    assert facts.files is not None
    assert sorted(facts.files) == [".gitlab-ci.yml", "inner"]
    assert changed_files(clone.folder / "sub") == [".gitlab-ci.yml", "inner"]


def test_a_folder_without_git(tmp_path: Path) -> None:
    folder = tmp_path / "My shop!"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("1")
    os.mkfifo(folder / "pipe")
    facts = facts_of(folder)
    assert facts.files is not None
    assert dict(facts.files) == {"pipe": NO_SHA, "sub/file": blob("1")}
    assert (facts.ref, facts.sha) == ("main", NO_SHA)
    assert facts.predefined["CI_PROJECT_PATH"] == "root/My-shop"
    assert facts.changes_since(None) is None
    assert isinstance(facts.changes_since("main"), SourceProblem)


def test_a_repository_without_commits(tmp_path: Path, make_repo: MakeRepo) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    repo = type(make_repo())(folder)
    repo.git("init", "--quiet", "--initial-branch=first")
    repo.write(file="1")
    facts = facts_of(folder)
    assert (facts.ref, facts.sha, facts.default_branch) == ("first", NO_SHA, "first")
    assert list(facts.files or ()) == ["file"]
    assert facts.changes_since(None) is None


def test_the_default_branch(make_repo: MakeRepo, clone: Any) -> None:
    clone.git("checkout", "--quiet", "-b", "feature")
    assert facts_of(clone.folder).default_branch == "main"
    repo = make_repo(branch="master")
    repo.git("checkout", "--quiet", "-b", "feature")
    assert facts_of(repo.folder).default_branch == "master"
    repo.git("branch", "trunk")
    repo.git("config", "init.defaultBranch", "trunk")
    assert facts_of(repo.folder).default_branch == "trunk"


def test_surrounding_git_hook_has_no_effect(make_repo: MakeRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo, other = make_repo(), make_repo("other", branch="elsewhere")
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.folder))
    assert facts_of(repo.folder).ref == "main"


def test_programs_that_a_repository_names_are_not_run(clone: Any, tmp_path: Path) -> None:
    for setting in ("core.fsmonitor", "diff.external"):
        clone.git("config", setting, f"touch {tmp_path / 'ran'}; false")
    clone.write(kept="2")
    assert changed_files(clone.folder) == ["kept"]
    assert list(facts_of(clone.folder).files or ())
    assert not (tmp_path / "ran").exists()


def test_nothing_is_written(clone: Any) -> None:
    clone.write(kept="2")
    index = clone.folder / ".git" / "index"
    before = index.stat().st_mtime_ns, index.read_bytes()
    facts = facts_of(clone.folder, event="merge_request")
    facts.changes_since(None), dict(facts.files or {})
    assert (index.stat().st_mtime_ns, index.read_bytes()) == before


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"event": "pull_request"}, "--event pull_request: there is no such event"),
        ({"ref": "a b"}, "--ref a b: is not a valid name"),
        ({"tag": "-x"}, "--tag -x: is not a valid name"),
        ({"event": "merge_request", "tag": "v1"}, "--tag v1: a merge request has a branch"),
    ],
)
def test_bad_input(make_repo: MakeRepo, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        facts_of(make_repo().folder, **options)
