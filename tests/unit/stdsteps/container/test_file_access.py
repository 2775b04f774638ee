"""`share` gives the users of a container access to a tree of files; links are not followed."""

import os
import stat
from pathlib import Path

from remuda.lib.safe_paths import remove_tree
from remuda.stdsteps.container.file_access import share


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_access_to_a_tree_is_granted_and_links_are_not_followed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("x")
    (outside / "file").chmod(0o600)
    (tree / "deep").mkdir(parents=True)
    (tree / "deep").chmod(0o700)
    for name, bits in (("plain", 0o600), ("program", 0o700), ("deep/open", 0o666)):
        (tree / name).touch()
        (tree / name).chmod(bits)
    (tree / "link").symlink_to(outside / "file")
    (tree / "folder").symlink_to(outside)
    os.mkfifo(tree / "pipe", 0o600)
    share(str(tree))
    assert [read_mode(tree / name) for name in ("plain", "program", "deep", "deep/open", "pipe")] == [
        *(0o666, 0o777, 0o777, 0o666, 0o600)
    ]
    assert read_mode(outside / "file") == 0o600
    share(str(tmp_path / "absent"))


def test_access_is_granted_in_a_tree_deeper_than_the_stack(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("folder", 0o700, dir_fd=here)
        inner = os.open("folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    share(str(tmp_path))
    assert stat.S_IMODE(os.fstat(here).st_mode) == 0o777
    os.close(here)
    remove_tree(tmp_path / "folder")
