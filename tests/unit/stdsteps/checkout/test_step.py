from pathlib import Path

import pytest

from remuda.stdsteps.checkout.git import Git, split_credentials, write_config
from remuda.stdsteps.checkout.step import prepare


def test_settings_and_hooks_of_an_existing_repository_are_removed(tmp_path: Path) -> None:
    work, private = tmp_path / "work", tmp_path / "private"
    git_folder = work / ".git"
    for folder in (git_folder / "hooks", git_folder / "info", git_folder / "worktrees", private):
        folder.mkdir(parents=True)
    (tmp_path / "bad").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/ran\n")
    (git_folder / "config").symlink_to(tmp_path / "bad")
    (git_folder / "config.worktree").write_text((tmp_path / "bad").read_text())
    (git_folder / "info/attributes").write_text("* filter=bad\n")
    (git_folder / "commondir").write_text(str(tmp_path))
    (git_folder / "hooks/post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (git_folder / "hooks/post-checkout").chmod(0o755)
    remote = split_credentials("http://u:secret@h/x")
    git = Git(work, write_config(private, remote))
    prepare(git, work, remote)
    git.run("status")
    assert not (tmp_path / "ran").exists()
    assert not list(git_folder.glob("hooks/*"))
    assert not list(git_folder.glob("info/*"))
    assert "secret" not in (git_folder / "config").read_text()
    assert "touch" in (tmp_path / "bad").read_text(), "the file was written through the link"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_repository_outside_of_the_folder_is_not_changed(tmp_path: Path, kind: str) -> None:
    work, private, other = tmp_path / "work", tmp_path / "private", tmp_path / "other"
    for folder in (work, private, other):
        folder.mkdir()
    if kind == "link":
        (work / ".git").symlink_to(other)
    else:
        (work / ".git").write_text(f"gitdir: {other}\n")
    remote = split_credentials("http://h/x")
    prepare(Git(work, write_config(private, remote)), work, remote)
    assert not list(other.iterdir())
    assert (work / ".git/HEAD").exists()
