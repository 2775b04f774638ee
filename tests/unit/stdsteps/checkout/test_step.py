from pathlib import Path

import pytest

from remuda.stdsteps.checkout.git import Git, split_credentials, write_config
from remuda.stdsteps.checkout.step import prepare


def test_a_repository_found_there_cannot_command(tmp_path: Path) -> None:
    work, private = tmp_path / "work", tmp_path / "private"
    inside = work / ".git"
    for folder in (inside / "hooks", inside / "info", inside / "worktrees", private):
        folder.mkdir(parents=True)
    (tmp_path / "bad").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/ran\n")
    (inside / "config").symlink_to(tmp_path / "bad")
    (inside / "config.worktree").write_text((tmp_path / "bad").read_text())
    (inside / "info/attributes").write_text("* filter=bad\n")
    (inside / "commondir").write_text(str(tmp_path))
    (inside / "hooks/post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (inside / "hooks/post-checkout").chmod(0o755)
    remote = split_credentials("http://u:secret@h/x")
    git = Git(work, write_config(private, remote))
    prepare(git, work, remote)
    git.run("status")
    assert not (tmp_path / "ran").exists()
    assert not list(inside.glob("hooks/*"))
    assert not list(inside.glob("info/*"))
    assert "secret" not in (inside / "config").read_text()
    assert "touch" in (tmp_path / "bad").read_text(), "written through the link"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_repository_elsewhere_is_left_alone(tmp_path: Path, kind: str) -> None:
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
