from pathlib import Path

import pytest

from remuda.cli.exits import BadInputError
from remuda.cli.run import _resolve, remove_tree


@pytest.mark.parametrize(
    ("folder", "project"),
    [("shop", "shop"), ("my shop!", "my-shop"), ("été", "t"), ("...", "project"), ("lib.git", "lib"), ("-x-", "x")],
)
def test_the_project_is_named_after_the_folder(tmp_path: Path, folder: str, project: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / ".gitlab-ci.yml").write_text("a: {script: [b]}\n")
    assert _resolve(tmp_path / folder, None, None, "text", None).project_name == project


def test_at_least_two_jobs_run_at_once(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("a: {script: [b]}\n")
    assert _resolve(tmp_path, None, None, "text", None).jobs >= 2
    assert _resolve(tmp_path, None, 7, "text", None).jobs == 7


def test_a_missing_file_shows_how_the_smallest_one_looks(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"hello:\n +script:"):
        _resolve(tmp_path, None, None, "text", None)


def test_folders_without_write_permission_are_removed_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    locked = folder / "cache" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    (locked / "link").symlink_to("/nowhere")
    locked.chmod(0o500)
    (folder / "cache").chmod(0o500)
    remove_tree(folder)
    assert not folder.exists()


def test_a_folder_for_artifacts_that_cannot_be_made_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("a: {script: [b]}\n")
    with pytest.raises(BadInputError, match="--artifacts /proc/x: cannot be made"):
        _resolve(tmp_path, None, None, "text", Path("/proc/x"))
