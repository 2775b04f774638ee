import subprocess
from pathlib import Path

import pytest

from remuda.stdsteps.checkout.git import Git, split_credentials, write_config
from remuda.stdsteps.checkout.lfs import pull


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Git in a repository, on a machine without git-lfs."""
    work, private = tmp_path / "work", tmp_path / "private"
    work.mkdir()
    private.mkdir()
    subprocess.run(["git", "init", "-q", work], check=True)
    instance = Git(work, write_config(private, split_credentials("https://host.test/g/p.git")))
    monkeypatch.setenv("PATH", str(private))
    return instance


@pytest.mark.parametrize(
    ("file", "attributes", "warns"),
    [
        (".gitattributes", "*.bin filter=lfs -text\n", True),
        ("assets/deep/.gitattributes", "*.bin filter=lfs -text\n", True),
        (".gitattributes", "*.c diff=cpp\n", False),
        ("other", "", False),
    ],
)
def test_missing_git_lfs_is_a_warning_if_the_repository_uses_it(
    git: Git, tmp_path: Path, file: str, attributes: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    (work / file).parent.mkdir(parents=True, exist_ok=True)
    (work / file).write_text(attributes)
    git.run("add", ".")
    pull(git, work)
    assert ("git-lfs is not installed" in capsys.readouterr().out) == warns


def test_attributes_are_not_read_through_a_link(git: Git, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").write_text("*.bin filter=lfs\n")
    (tmp_path / "work/.gitattributes").symlink_to(tmp_path / "elsewhere")
    git.run("add", ".")
    pull(git, tmp_path / "work")
    assert capsys.readouterr().out == ""
