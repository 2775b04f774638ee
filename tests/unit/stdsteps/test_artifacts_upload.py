import gzip
import subprocess
from pathlib import Path

import pytest

from remuda.stdsteps.artifacts_upload import build, is_wanted, pattern_regex, select
from remuda.stdsteps.errors import StepError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.txt", ".hidden", "out/b.txt", "out/deep/c.txt", "out/deep/d.bin", ".git/config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "exclude", "names"),
    [
        (["a.txt"], [], {"a.txt"}),
        (["./out/"], [], {"out", "out/b.txt", "out/deep", "out/deep/c.txt", "out/deep/d.bin"}),
        (["**/*.txt"], [], {"a.txt", "out/b.txt", "out/deep/c.txt"}),
        (["out/*"], ["out/deep"], {"out/b.txt"}),
        (["out"], ["**/*.txt"], {"out", "out/deep", "out/deep/d.bin"}),
        ([".hidden", "none"], [], {".hidden"}),
        (["."], ["out/**"], {"a.txt", ".hidden"}),
        (["../*", "/etc/passwd"], [], set()),
        ([], [], set()),
    ],
)
def test_what_is_selected(root: Path, paths: list[str], exclude: list[str], names: set[str]) -> None:
    assert select(root, paths, exclude, untracked=False) == names


def test_untracked_files(root: Path) -> None:
    subprocess.run(["rm", "-r", root / ".git"], check=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "-C", root, "add", "a.txt", "out"], check=True)
    assert select(root, [], [], untracked=True) == {".hidden"}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.o", "a.o", True),
        ("*.o", "d/a.o", False),
        ("**/*.o", "a.o", True),
        ("**/*.o", "x/y/a.o", True),
        ("x/**", "x/y/z", True),
        ("x", "x/y", True),
        ("x", "xy", False),
        ("[ab]?", "b1", True),
        ("[!ab]?", "b1", False),
        ("a[", "a[", True),
        ("a+b", "aab", False),
    ],
)
def test_patterns(pattern: str, name: str, matches: bool) -> None:
    assert bool(pattern_regex(pattern).fullmatch(name)) == matches


@pytest.mark.parametrize(
    ("when", "status", "wanted"),
    [
        ("always", "failed", True),
        ("on_success", "running", True),
        ("on_success", "failed", False),
        ("on_failure", "canceled", True),
        ("on_failure", "success", False),
    ],
)
def test_when(when: str, status: str, wanted: bool) -> None:
    assert is_wanted(when, status) == wanted


def test_other_formats(root: Path) -> None:
    build(root / "x.gz", root, ["out", "out/b.txt", "a.txt"], "gzip")
    assert gzip.decompress((root / "x.gz").read_bytes()) == b"a.txtout/b.txt"
    build(root / "x.raw", root, ["a.txt"], "raw")
    assert (root / "x.raw").read_text() == "a.txt"
    with pytest.raises(StepError, match="exactly one file, not 2"):
        build(root / "x.raw", root, ["a.txt", "out/b.txt"], "raw")
