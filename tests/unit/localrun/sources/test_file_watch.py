"""Which files count as changed, and when a change is complete."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.localrun.sources.file_watch import QUIET_SECONDS, Look, look, wait_for_change

MakeRepo = Callable[..., Any]


def test_ignored_files_do_not_count(make_repo: MakeRepo) -> None:
    repo = make_repo(a="1")
    repo.put(".gitignore", "*.log\n")
    before = look(repo.folder)
    repo.put("x.log", "noise")
    repo.put("deep/y.log", "noise")
    assert look(repo.folder) == before
    repo.put("deep/new", "file")
    assert look(repo.folder).keys() - before.keys() == {"deep/new"}
    (repo.folder / "a").unlink()
    assert "a" not in look(repo.folder)


def test_a_plain_folder_is_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_text("1")
    assert look(tmp_path).keys() == {"deep/a"}


def test_only_a_git_folder_inside_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / ".git" / "plain"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("")
    (folder / "a").write_text("1")
    assert look(folder).keys() == {"a"}


def test_a_change_is_over_when_nothing_changes_any_more(tmp_path: Path) -> None:
    state: Look = {"a": (1, 1, 1), "b": (1, 1, 1)}
    looks = iter([state, {**state, "a": (2, 1, 1)}, {"a": (3, 1, 1)}, {"a": (3, 1, 1)}])
    slept: list[float] = []
    assert wait_for_change(tmp_path, state, sleep=slept.append, see=lambda _: next(looks)) == ["a", "b"]
    assert slept[1:] == [QUIET_SECONDS, QUIET_SECONDS]
