import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.safe_paths import remove_tree
from remuda.steps.resolving.tree import digest_of, keep, protect, size_of, stamp_of


def a_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_same_files_have_the_same_digest(tmp_path: Path) -> None:
    one = a_tree(tmp_path / "one", {"b": "2", "a/c": "1"})
    other = a_tree(tmp_path / "other", {"a/c": "1", "b": "2"})
    (other / "b").chmod(0o600)
    (other / "empty").mkdir()
    assert digest_of(one) == digest_of(other)
    assert digest_of(one).startswith("sha256:")
    assert size_of(one) == 2


@pytest.mark.parametrize("change", ["content", "name", "mode", "link", "more", "folder"])
def test_every_change_shows(tmp_path: Path, change: str) -> None:
    root = a_tree(tmp_path / "one", {"b": "2", "a/c": "1"})
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


def test_a_change_that_hides_shows_in_the_stamp(tmp_path: Path) -> None:
    root = a_tree(tmp_path / "one", {"b": "2"})
    stamp, status = stamp_of(root), (root / "b").stat()
    (root / "b").write_text("3")
    os.utime(root / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert stamp_of(root) != stamp


@given(st.dictionaries(st.from_regex(r"[a-z \n]{1,3}", fullmatch=True), st.text(max_size=3), min_size=1, max_size=4))
def test_names_and_contents_cannot_be_mistaken(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, text in files.items():
        (root / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    before = digest_of(root)
    name = min(files)
    (root / name).rename(root / (name + "x"))
    assert digest_of(root) != before


def test_protected_folders_can_be_kept_and_removed(tmp_path: Path) -> None:
    made = a_tree(tmp_path / "made", {"a/b/c": "1"})
    keep(made, tmp_path / "place/here")
    assert stat.S_IMODE((tmp_path / "place/here/a/b").stat().st_mode) == 0o555
    keep(a_tree(tmp_path / "second", {"other": "1"}), tmp_path / "place/here")
    assert not (tmp_path / "place/here/other").exists()
    remove_tree(tmp_path / "place/here")
    assert not (tmp_path / "place/here").exists()
    protect(tmp_path / "nowhere")
    remove_tree(tmp_path / "nowhere", ignore_errors=True)
