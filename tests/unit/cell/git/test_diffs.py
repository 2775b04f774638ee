"""Differences of commits as git prints them."""

import subprocess
from pathlib import Path

from remuda.cell.git.diffs import FileDiff, parse_diff


def git(folder: Path, *args: str) -> bytes:
    command = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", *args)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout


def test_what_git_prints_for_each_kind_of_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("changed", "gone", "old name", "becomes link"):
        (tmp_path / name).write_text("".join(f"{name} {number}\n" for number in range(9)))
    (tmp_path / "image").write_bytes(b"\0\1")
    git(tmp_path, "add", "."), git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "changed").write_text("diff --git a/x b/x\n")
    (tmp_path / "gone").unlink()
    (tmp_path / "old name").rename(tmp_path / 'new "name"\n')
    (tmp_path / "becomes link").unlink()
    (tmp_path / "becomes link").symlink_to("changed")
    (tmp_path / "added").write_text("new\n")
    (tmp_path / "image").write_bytes(b"\0\2")
    git(tmp_path, "add", "-A"), git(tmp_path, "commit", "-qm", "two")
    raw, patches = (git(tmp_path, "diff", "-M", *form, "HEAD~1", "HEAD") for form in (("--raw", "-z"), ("-p",)))
    files = {file.new_path: file for file in parse_diff(raw, patches)}
    assert files["added"] == FileDiff(
        old_path="added",
        new_path="added",
        a_mode="0",
        b_mode="100644",
        new_file=True,
        renamed_file=False,
        deleted_file=False,
        diff="@@ -0,0 +1 @@\n+new\n",
    )
    assert files["changed"].diff.endswith("+diff --git a/x b/x\n")
    assert (files["gone"].deleted_file, files["gone"].b_mode) == (True, "0")
    renamed = files['new "name"\n']
    assert (renamed.old_path, renamed.renamed_file, renamed.diff) == ("old name", True, "")
    assert files["becomes link"].diff.count("@@ -") == 2
    assert files["becomes link"].b_mode == "120000"
    assert files["image"].diff.startswith("Binary files")
    assert all(file.too_large and not file.diff for file in parse_diff(raw, None))
