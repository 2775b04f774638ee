import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.safe_paths import remove_tree
from remuda.steps.resolving.tree import digest_of, keep, protect, size_of, stamp_of


def create_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_same_files_have_the_same_digest(tmp_path: Path) -> None:
    first = create_tree(tmp_path / "one", {"b": "2", "a/c": "1"})
    second = create_tree(tmp_path / "other", {"a/c": "1", "b": "2"})
    (second / "b").chmod(0o600)
    (second / "empty").mkdir()
    assert digest_of(first) == digest_of(second)
    assert digest_of(first).startswith("sha256:")
    assert size_of(first) == 2


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "more", "folder"])
def test_every_change_changes_digest_and_stamp(tmp_path: Path, change: str) -> None:
    root = create_tree(tmp_path / "one", {"b": "2", "a/c": "1"})
    (root / "link").symlink_to("b")
    before, stamp = digest_of(root), stamp_of(root)
    match change:
        case "content":
            (root / "b").write_text("3")
        case "name":
            (root / "b").rename(root / "d")
        case "mode":
            (root / "b").chmod(0o755)
        case "link":
            (root / "link").unlink()
            (root / "link").symlink_to("a")
        case "more":
            (root / "d").touch()
        case "folder":
            (root / "a").rename(root / "e")
    assert digest_of(root) != before
    assert stamp_of(root) != stamp


def test_a_change_with_the_old_modification_time_changes_the_stamp(tmp_path: Path) -> None:
    root = create_tree(tmp_path / "one", {"b": "2"})
    stamp, status = stamp_of(root), (root / "b").stat()
    (root / "b").write_text("3")
    os.utime(root / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stamp_of(root) != stamp


@given(st.dictionaries(st.from_regex(r"[a-z \n]{1,3}", fullmatch=True), st.text(max_size=3), min_size=1, max_size=4))
def test_a_renamed_file_changes_the_digest(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, text in files.items():
        (root / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    before = digest_of(root)
    name = min(files)
    (root / name).rename(root / (name + "x"))
    assert digest_of(root) != before


def test_a_kept_folder_is_read_only_and_can_be_removed(tmp_path: Path) -> None:
    folder = create_tree(tmp_path / "first", {"a/b/c": "1"})
    keep(folder, tmp_path / "kept/folder")
    assert stat.S_IMODE((tmp_path / "kept/folder/a/b").stat().st_mode) == 0o555
    keep(create_tree(tmp_path / "second", {"other": "1"}), tmp_path / "kept/folder")
    assert not (tmp_path / "kept/folder/other").exists()
    remove_tree(tmp_path / "kept/folder")
    assert not (tmp_path / "kept/folder").exists()
    protect(tmp_path / "nowhere")
    remove_tree(tmp_path / "nowhere", ignore_errors=True)
