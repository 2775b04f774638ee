"""Which remote of a git repository is a project of a cell."""

import subprocess
from pathlib import Path

import pytest

from remuda.cli.access.folder_project import find_folder_project, project_in, require_project
from remuda.lib.exits import BadInputError


@pytest.mark.parametrize(
    ("remote", "url", "project"),
    [
        ("http://me:secret@127.0.0.1:8929/root/shop.git", "http://127.0.0.1:8929", "root/shop"),
        ("http://localhost:8929/root/shop", "http://127.0.0.1:8929", "root/shop"),
        ("https://ci.example/a/b/c.git/", "https://ci.example:443/", "a/b/c"),
        ("https://ci.example/prefix/a/b.git", "https://ci.example/prefix", "a/b"),
        ("https://ci.example/a%2Db/c.git", "https://ci.example", "a-b/c"),
        ("https://ci.example/other/a/b.git", "https://ci.example/prefix", None),
        ("https://ci.example/b.git", "https://ci.example", None),
        ("http://ci.example:8929/a/b.git", "http://ci.example:8930", None),
        ("https://other.example/a/b.git", "https://ci.example", None),
        ("git@ci.example:a/b.git", "https://ci.example", None),
        ("/srv/git/a/b.git", "https://ci.example", None),
        ("http://[", "https://ci.example", None),
    ],
)
def test_project_in(remote: str, url: str, project: str | None) -> None:
    assert project_in(remote, url) == project


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def test_origin_goes_first_and_subfolders_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    assert find_folder_project("http://ci.example", tmp_path) is None
    git(tmp_path, "remote", "add", "another", "http://ci.example/root/one.git")
    git(tmp_path, "remote", "add", "origin", "http://ci.example/root/two.git")
    below = tmp_path / "src"
    below.mkdir()
    assert find_folder_project("http://ci.example", below) == "root/two"
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert find_folder_project("http://ci.example", tmp_path) == "root/two"


def test_without_a_project_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"-p GROUP/NAME.*http://ci\.example"):
        require_project(None, "http://ci.example")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInputError, match="which project"):
        require_project(None, "http://ci.example")
    assert require_project("a/b", "http://ci.example") == "a/b"
