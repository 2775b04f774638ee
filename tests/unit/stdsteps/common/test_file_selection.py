import os
import subprocess
from pathlib import Path

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.file_selection import alternatives, leads_inside, match_names, pattern_regex, select


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
def test_files_by_paths_and_exclusions(root: Path, paths: list[str], exclude: list[str], names: set[str]) -> None:
    assert select(root, paths, exclude, untracked=False) == names


def test_untracked_files(root: Path) -> None:
    subprocess.run(["rm", "-r", root / ".git"], check=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["git", "-C", root, "add", "a.txt", "out"], check=True)
    assert select(root, [], [], untracked=True) == {".hidden"}


def test_untracked_files_are_listed_without_the_settings_of_the_repository(root: Path, tmp_path: Path) -> None:
    (root / ".git/config").unlink()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "a.txt"], cwd=root, check=True)
    marker = tmp_path / "marker"
    with (root / ".git/config").open("a") as file:
        file.write(f'[core]\n\tfsmonitor = "touch {marker}; false"\n\tworktree = {tmp_path}\n')
    assert "a.txt" not in select(root, [], [], untracked=True)
    assert ".hidden" in select(root, [], [], untracked=True)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
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
def test_patterns_of_exclusions(pattern: str, name: str, expected: bool) -> None:
    assert bool(pattern_regex(pattern).fullmatch(name)) == expected


def test_paths_may_begin_with_the_working_directory(root: Path) -> None:
    assert select(root, [f"{root}/out/b.txt"], untracked=False) == {"out/b.txt"}
    assert "a.txt" in select(root, [str(root)], untracked=False)


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["out/{b,none}.txt"], {"out/b.txt"}),
        (["{a.txt,out/b.txt}"], {"a.txt", "out/b.txt"}),
        (["out/**/*.txt"], {"out/b.txt", "out/deep/c.txt"}),
        (["**/deep/**"], {"out/deep", "out/deep/c.txt", "out/deep/d.bin"}),
        (["*/deep"], {"out/deep", "out/deep/c.txt", "out/deep/d.bin"}),
        (["a.txt/*", "out/../a.txt"], {"a.txt"}),
        (["out/[^b]*"], {"out/deep", "out/deep/c.txt", "out/deep/d.bin"}),
        (["", "out/../../x"], set()),
    ],
)
def test_patterns_of_paths(root: Path, paths: list[str], names: set[str]) -> None:
    assert select(root, paths, untracked=False) == names


def test_circular_links_are_selected_but_not_followed(root: Path) -> None:
    for number in range(30):
        (root / f"out/circle{number}").symlink_to("..")
    assert select(root, ["**/*.txt"], untracked=False) == {"a.txt", "out/b.txt", "out/deep/c.txt"}
    assert "out/circle7" in select(root, ["out"], untracked=False)
    assert not any(name.startswith("out/circle7/") for name in select(root, ["."], untracked=False))


def test_a_path_through_a_link_is_followed(root: Path) -> None:
    (root / "link").symlink_to("out")
    assert select(root, ["link/b.txt"], untracked=False) == {"link/b.txt"}


def test_a_link_that_leads_out_is_kept_as_a_link_and_not_followed(
    root: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link to /etc of a job's container leads to another folder in this process."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "shadow").write_text("secret")
    (root / "etc").symlink_to(outside)
    assert select(root, ["etc"], untracked=False) == {"etc"}
    for pattern in ("etc/shadow", "etc/*", "etc/**", "*/shadow", "etc/../etc/shadow"):
        assert "etc/shadow" not in select(root, [pattern], untracked=False)
    assert "etc is a link that leads out" in capsys.readouterr().out


def test_names_that_are_not_utf_8_are_skipped(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / os.fsdecode(b"out/\xff")).touch()
    assert select(root, ["out/*"], ["out/deep"], untracked=False) == {"out/b.txt"}
    assert "skipped 1 files whose names are not valid UTF-8" in capsys.readouterr().out


def test_the_warning_for_a_missing_file_names_the_folder(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    select(root, ["none.xml"], untracked=False)
    warning = "WARNING: none.xml: no matching files. Ensure that the path is relative to the working directory"
    assert capsys.readouterr().out == f"{warning} ({root})\n"


def test_braces_are_expanded_to_alternatives() -> None:
    assert set(alternatives("a{b,c{d,e}}f")) == {"abf", "acdf", "acef"}
    assert alternatives("a{b}c") == ["a{b}c"]
    with pytest.raises(StepError, match="more than 1000"):
        alternatives("{a,b}" * 20)


def test_links_do_not_lead_out_of_the_working_directory(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "shadow").write_text("of the host")
    (root / "way").symlink_to(elsewhere)
    (root / "file").symlink_to(elsewhere / "shadow")
    assert select(root, ["way/shadow", "way/*", "file", "way"], untracked=False) == {"file", "way"}
    assert not leads_inside(root, "file")
    assert leads_inside(root, "out/b.txt")


def test_very_deep_folders(root: Path) -> None:
    subprocess.run(["mkdir", "-p", root / "/".join("d" * 1200)], check=True)
    assert len(select(root, ["d"], untracked=False)) == 1200
    # Python cannot remove a tree as deep as this.
    subprocess.run(["rm", "-r", root / "d"], check=True)


@pytest.mark.parametrize(
    "pattern", ["*.txt", "**/*.txt", "o**t", "out/d**.txt", "out/**", "o*/deep/**/c.txt", ".", "out/"]
)
def test_names_match_as_files_of_the_same_name_do(root: Path, pattern: str) -> None:
    names = {name for name in select(root, ["."], untracked=False) if (root / name).is_file()}
    assert match_names(root, [pattern], names) == select(root, [pattern], untracked=False) & names
