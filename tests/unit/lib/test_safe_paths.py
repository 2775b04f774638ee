"""Operations on folders that a job controls: links, mount points and missing permissions.

Mounts are made in a private mount namespace.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from remuda.lib import safe_paths
from remuda.lib.safe_paths import (
    close_after,
    empty,
    make_below,
    mounts_below,
    open_below,
    open_folder,
    open_inside,
    remove,
    remove_below,
    remove_tree,
    replace_file,
    walk,
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
REMOVED_LEVELS = 5000
WALKED_LEVELS = 1500
OTHER_UID = 54321


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder that every user can enter."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run_as(uid: int, work: Callable[[], None]) -> None:
    """Call `work` in a child process of another user; fail if it raises."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def nest(top: Path, levels: int, *, mode: int = 0o777) -> None:
    """Create nested folders with a file in every hundredth; then set their mode, from the innermost on."""
    here = os.open(top, os.O_RDONLY)
    for number in range(levels):
        os.mkdir("folder", dir_fd=here)
        if number % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("folder", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    while mode != 0o777 and levels:
        levels -= 1
        outer = os.open("..", os.O_RDONLY, dir_fd=here)
        os.fchmod(here, mode)
        os.close(here)
        here = outer
    os.close(here)


_SWAP_PROGRAM = """
import ctypes, sys
libc = ctypes.CDLL(None)
first, second = (argument.encode() for argument in sys.argv[1:])
print(flush=True)
while True: libc.renameat2(-100, first, -100, second, 2)
"""


@contextmanager
def swap_continuously(first: Path, second: Path) -> Iterator[None]:
    """Exchange two names again and again, as a process that survived its job could."""
    process = subprocess.Popen([sys.executable, "-c", _SWAP_PROGRAM, first, second], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_tree_deeper_than_the_stack_and_the_longest_path_is_removed(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    nest(tmp_path / "top", REMOVED_LEVELS)
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


_FILL_PROGRAMS = {
    "wide": """
import os, sys
os.chdir(sys.argv[1])
number = 0
while True:
    number += 1
    if number == 500: print(flush=True)
    for name in (f"{number}", f"{number}/a", f"{number}/a/b", f"{number}/a/b/c"):
        try: os.mkdir(name)
        except OSError: pass
""",
    "deep": """
import os, sys
os.chdir(sys.argv[1])
number = 0
while True:
    number += 1
    if number == 500: print(flush=True)
    try:
        os.mkdir("a")
        os.chdir("a")
    except OSError:
        os.chdir(sys.argv[1])
""",
}


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_emptying_an_ever_filled_folder_is_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    monkeypatch.setattr(safe_paths, "_MOST_PASSES", 50)
    monkeypatch.setattr(safe_paths, "_MOST_NEW", 10)
    process = subprocess.Popen([sys.executable, "-c", _FILL_PROGRAMS[shape], tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        with close_after(open_folder(str(tmp_path))) as top:
            error = wait_for_error(top)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    # pytest could not remove a tree as deep as this.
    monkeypatch.undo()
    with close_after(open_folder(str(tmp_path))) as top:
        empty(top)
    assert error.errno in (errno.EBUSY, errno.ENOTEMPTY)


def wait_for_error(top: int) -> OSError:
    """Empty the folder until that fails. It may succeed by chance while the folder is empty for a moment."""
    while True:
        try:
            empty(top)
        except OSError as error:
            return error


def test_links_in_a_tree_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept" / "inside").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "b" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "a" / "b").chmod(0o555)
    (tmp_path / "tree" / "a").chmod(0o555)
    remove_tree(tmp_path / "tree")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "inside"]
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "none")
    remove_tree(tmp_path / "none", ignore_errors=True)
    assert (tmp_path / "kept" / "inside").is_dir()
    remove(str(tmp_path / "link"))
    remove(str(tmp_path / "link"))
    assert not os.path.lexists(tmp_path / "link")


@as_root
@pytest.mark.parametrize("mode", [0o500, 0o000, 0o300, 0o400])
def test_a_tree_without_permissions_is_removed_by_its_owner(folder: Path, mode: int) -> None:
    (folder / "top").mkdir()
    os.chown(folder / "top", OTHER_UID, OTHER_UID)
    os.chown(folder, OTHER_UID, OTHER_UID)

    def work() -> None:
        (folder / "top" / "a").mkdir()
        nest(folder / "top" / "a", 50, mode=mode)
        (folder / "top" / "a").chmod(mode)
        (folder / "top").chmod(mode)
        remove_tree(folder / "top")

    run_as(OTHER_UID, work)
    assert list(folder.iterdir()) == []


@as_root
def test_an_entry_that_cannot_be_removed_is_an_error_and_the_rest_is_removed(folder: Path) -> None:
    (folder / "top" / "mine").mkdir(parents=True)
    (folder / "top" / "mine" / "file").touch()
    (folder / "top" / "also").mkdir()
    for name in ("top", "top/also"):
        os.chown(folder / name, OTHER_UID, OTHER_UID)

    def work() -> None:
        with pytest.raises(PermissionError):
            remove_tree(folder / "top")

    run_as(OTHER_UID, work)
    assert [path.name for path in (folder / "top").iterdir()] == ["mine"]


def test_swapping_a_folder_and_a_link_changes_nothing_behind_the_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "inside" / "file").write_text("kept")
    (precious / "file").write_text("kept")
    base = tmp_path / "base"
    (base / "work" / "inside").mkdir(parents=True)
    (base / "link").symlink_to(precious)
    with swap_continuously(base / "work", base / "link"):
        for number in range(300):
            # The swap may cause errors, but no change outside of `base`.
            with suppress(OSError), close_after(make_below(base, "work/inside")) as opened:
                replace_file(opened, f"file{number}", b"x")
                empty(opened)
            with suppress(OSError):
                remove_below(base, "work/inside")
            # `remove_below` may have removed the link.
            with suppress(OSError):
                (base / "link").symlink_to(precious)
    assert sorted(str(path.relative_to(precious)) for path in precious.rglob("*")) == ["file", "inside", "inside/file"]
    assert (precious / "file").read_text() == (precious / "inside/file").read_text() == "kept"


def test_make_below_replaces_links_and_files_by_folders(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "c").mkdir(parents=True)
    base = tmp_path / "base"
    for _ in range(2):
        os.close(make_below(base, "a/b/c"))
        for name in ("a/b/c", "a/b", "a"):
            shutil.rmtree(base / name)
            (base / name).symlink_to(precious)
            with pytest.raises(NotADirectoryError):
                open_below(base, name)
            with close_after(make_below(base, "a/b/c", mode=0o700)) as opened:
                assert os.path.samestat(os.fstat(opened), os.lstat(base / "a/b/c"))
            assert not (base / name).is_symlink()
    assert [path.name for path in precious.rglob("*")] == ["c"]
    shutil.rmtree(base / "a")
    (base / "a").write_text("a file")
    os.close(make_below(base, "a"))
    for name in ("../x", "a/../../x", "/x"):
        with pytest.raises(OSError, match="leaves its folder"):
            make_below(base, name)


def test_remove_below_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "precious" / "b").mkdir(parents=True)
    base = tmp_path / "base"
    base.mkdir()
    (base / "a").symlink_to(tmp_path / "precious")
    remove_below(base, "a/b")
    remove_below(base, "none/b")
    assert (tmp_path / "precious" / "b").is_dir()
    remove_below(base, "a")
    assert list(base.iterdir()) == []


@as_root
def test_a_parent_folder_of_another_user_is_replaced(folder: Path) -> None:
    os.close(make_below(folder, "a/b", is_owned=True))
    (folder / "a" / "b" / "kept").touch()
    for name in ("a/b", "a/b/kept"):
        os.chown(folder / name, OTHER_UID, OTHER_UID)
    os.close(make_below(folder, "a/b", is_owned=True))
    assert (folder / "a/b/kept").exists()
    os.close(make_below(folder, "a/b/c", is_owned=True))
    assert not (folder / "a/b/kept").exists()
    assert (folder / "a/b").stat().st_uid == os.geteuid()


@as_root
def test_make_below_restores_the_permissions_of_the_owner(folder: Path) -> None:
    os.chown(folder, OTHER_UID, OTHER_UID)

    def work() -> None:
        os.close(make_below(folder, "a/b"))
        for name in ("a/b", "a"):
            (folder / name).chmod(0)
        os.close(make_below(folder, "a/b"))
        (folder / "a/b/file").touch()

    run_as(OTHER_UID, work)
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o700


def test_a_deep_tree_is_walked_with_few_descriptors(tmp_path: Path) -> None:
    nest(tmp_path, WALKED_LEVELS)
    (tmp_path / "link").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    folders, names, most = 0, 0, 0
    with close_after(open_folder(str(tmp_path))) as top:
        for visited in walk(top):
            folders, names = folders + 1, names + len(visited.names)
            assert visited.is_plain == ("link" not in visited.names)
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert (folders, names) == (WALKED_LEVELS + 1, WALKED_LEVELS / 100 + 1)
    assert most < before + 10
    remove_tree(tmp_path / "folder")


_MOUNT_PROGRAM = """
import os, sys
from pathlib import Path
from remuda.lib.safe_paths import make_below, open_folder, remove_below, remove_tree, walk
base = Path(sys.argv[1])
def check_refusal(operation, *arguments):
    try:
        operation(*arguments)
    except OSError as error:
        assert "mount point" in str(error), error
    else:
        raise AssertionError("it was not refused")
check_refusal(remove_tree, base / "work")
check_refusal(remove_tree, base / "work/point")
check_refusal(remove_below, base, "work/a/point")
check_refusal(make_below, base, "work/point/inside")
assert not any("file" in visited.names for visited in walk(open_folder(str(base / "work"))))
"""


@as_root
@pytest.mark.parametrize(
    "mount", ["mount --bind {precious} {point}", "mount -t tmpfs none {point}; touch {point}/file"]
)
def test_mount_points_are_not_crossed(tmp_path: Path, mount: str) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "file").touch()
    points = [tmp_path / "base/work/a/point", tmp_path / "base/work/point"]
    for point in points:
        point.mkdir(parents=True)
    mounts = "; ".join(mount.format(precious=precious, point=point) for point in points)
    script = f'set -e; mount --make-rprivate /; {mounts}; exec "$0" -c "$1" "$2"'
    command = ["unshare", "-m", "sh", "-c", script, sys.executable, _MOUNT_PROGRAM, str(tmp_path / "base")]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert sorted(path.name for path in precious.iterdir()) == ["file", "inside"]
    remove_tree(tmp_path / "base")


def test_mounts_below_a_folder_are_parsed() -> None:
    lines = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:1 / /b/work rw - tmpfs none rw\n"
        "3 1 0:1 / /b/work/x\\040y\\303\\251 rw - tmpfs none rw\n4 1 0:1 / /b/workshop rw - tmpfs none rw\n"
    )
    assert mounts_below("/b/work", lines) == ["/b/work/x y\u00e9"]


def test_a_file_is_opened_only_inside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real/file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "way").symlink_to("real")
    (root / "out").symlink_to("..")
    (root / "link").symlink_to("real/file")
    (root / "leak").symlink_to("../secret")
    os.mkfifo(root / "pipe")
    for name, follow in (("real/file", False), ("way/file", False), ("link", True)):
        with open(open_inside(root, name, follow=follow)) as file:
            assert file.read() == "inside"
    for name, follow in (("link", False), ("leak", True), ("out/secret", True), ("pipe", False), ("real", False)):
        with pytest.raises(OSError, match=name):
            open_inside(root, name, follow=follow)


@as_root
def test_a_device_is_not_opened(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "device", stat.S_IFCHR | 0o600, os.makedev(240, 7))
        (tmp_path / "link").symlink_to("device")
    except PermissionError:
        pytest.skip("no devices can be made here")
    for name in ("device", "link"):
        # No driver has this number, so opening the device would fail with ENXIO.
        with pytest.raises(OSError, match="not a plain file"):
            open_inside(tmp_path, name, follow=True)


def test_replace_file_replaces_a_link(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to("kept")
    with close_after(open_folder(str(tmp_path))) as opened:
        replace_file(opened, "link", b"new", mode=0o600)
        os.mkdir(tmp_path / "folder")
        with pytest.raises(IsADirectoryError):
            replace_file(opened, "folder", b"new")
    assert (tmp_path / "kept").read_text() == "kept"
    assert (tmp_path / "link").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["folder", "kept", "link"]
