"""Nothing here leads out of the folders that the tests make; what is mounted is mounted in a namespace of its own."""

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
DEEP = 5000
WALKED = 1500
SOMEBODY = 54321


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that any user can reach."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run_as(uid: int, work: Callable[[], None]) -> None:
    """Do something as another user, and fail if it fails."""
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
    """Folders in folders, with a file now and then; from the innermost on they get the mode."""
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


_SWAPPING = """
import ctypes, sys
libc = ctypes.CDLL(None)
one, other = (word.encode() for word in sys.argv[1:])
print(flush=True)
while True: libc.renameat2(-100, one, -100, other, 2)
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names again and again, as a process of a job could that has survived it."""
    process = subprocess.Popen([sys.executable, "-c", _SWAPPING, one, other], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_tree_goes_that_is_deeper_than_a_stack_and_longer_than_a_path(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    nest(tmp_path / "top", DEEP)
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


_FILLING = {
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


@pytest.mark.parametrize("how", ["wide", "deep"])
def test_a_folder_that_somebody_goes_on_filling_is_an_error_and_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(safe_paths, "_MOST_PASSES", 50)
    monkeypatch.setattr(safe_paths, "_MOST_NEW", 10)
    process = subprocess.Popen([sys.executable, "-c", _FILLING[how], tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        with close_after(open_folder(str(tmp_path))) as top:
            refused = wait_for_error(top)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    # pytest could not remove a tree as deep as this.
    monkeypatch.undo()
    with close_after(open_folder(str(tmp_path))) as top:
        empty(top)
    assert refused.errno in (errno.EBUSY, errno.ENOTEMPTY)


def wait_for_error(top: int) -> OSError:
    """By chance nothing may be there for a moment: that is no error."""
    while True:
        try:
            empty(top)
        except OSError as error:
            return error


def test_links_of_a_tree_go_and_what_they_lead_to_stays(tmp_path: Path) -> None:
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
def test_a_tree_goes_whose_owner_took_all_rights_away(folder: Path, mode: int) -> None:
    (folder / "top").mkdir()
    os.chown(folder / "top", SOMEBODY, SOMEBODY)
    os.chown(folder, SOMEBODY, SOMEBODY)

    def work() -> None:
        (folder / "top" / "a").mkdir()
        nest(folder / "top" / "a", 50, mode=mode)
        (folder / "top" / "a").chmod(mode)
        (folder / "top").chmod(mode)
        remove_tree(folder / "top")

    run_as(SOMEBODY, work)
    assert list(folder.iterdir()) == []


@as_root
def test_what_cannot_be_removed_is_an_error_and_the_rest_goes(folder: Path) -> None:
    (folder / "top" / "mine").mkdir(parents=True)
    (folder / "top" / "mine" / "file").touch()
    (folder / "top" / "also").mkdir()
    for name in ("top", "top/also"):
        os.chown(folder / name, SOMEBODY, SOMEBODY)

    def work() -> None:
        with pytest.raises(PermissionError):
            remove_tree(folder / "top")

    run_as(SOMEBODY, work)
    assert [path.name for path in (folder / "top").iterdir()] == ["mine"]


def test_a_swap_of_folder_and_link_harms_nothing_behind_the_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "inside" / "file").write_text("kept")
    (precious / "file").write_text("kept")
    base = tmp_path / "base"
    (base / "work" / "inside").mkdir(parents=True)
    (base / "link").symlink_to(precious)
    with swapping(base / "work", base / "link"):
        for number in range(300):
            # Whoever swaps may get in the way, but not anywhere else.
            with suppress(OSError), close_after(make_below(base, "work/inside")) as opened:
                replace_file(opened, f"file{number}", b"x")
                empty(opened)
            with suppress(OSError):
                remove_below(base, "work/inside")
            # What was unlinked as a link is put there again.
            with suppress(OSError):
                (base / "link").symlink_to(precious)
    assert sorted(str(path.relative_to(precious)) for path in precious.rglob("*")) == ["file", "inside", "inside/file"]
    assert (precious / "file").read_text() == (precious / "inside/file").read_text() == "kept"


def test_whatever_is_in_the_place_of_a_folder_is_replaced_by_one(tmp_path: Path) -> None:
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


def test_removal_follows_no_link_on_the_way(tmp_path: Path) -> None:
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
def test_a_folder_on_the_way_that_is_somebody_elses_is_made_anew(folder: Path) -> None:
    os.close(make_below(folder, "a/b", is_owned=True))
    (folder / "a" / "b" / "kept").touch()
    for name in ("a/b", "a/b/kept"):
        os.chown(folder / name, SOMEBODY, SOMEBODY)
    os.close(make_below(folder, "a/b", is_owned=True))
    assert (folder / "a/b/kept").exists()
    os.close(make_below(folder, "a/b/c", is_owned=True))
    assert not (folder / "a/b/kept").exists()
    assert (folder / "a/b").stat().st_uid == os.geteuid()


@as_root
def test_a_folder_without_rights_can_be_worked_in_again(folder: Path) -> None:
    os.chown(folder, SOMEBODY, SOMEBODY)

    def work() -> None:
        os.close(make_below(folder, "a/b"))
        for name in ("a/b", "a"):
            (folder / name).chmod(0)
        os.close(make_below(folder, "a/b"))
        (folder / "a/b/file").touch()

    run_as(SOMEBODY, work)
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o700


def test_a_deep_tree_is_walked_with_few_descriptors(tmp_path: Path) -> None:
    nest(tmp_path, WALKED)
    (tmp_path / "link").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    folders, names, most = 0, 0, 0
    with close_after(open_folder(str(tmp_path))) as top:
        for found in walk(top):
            folders, names = folders + 1, names + len(found.names)
            assert found.is_plain == ("link" not in found.names)
            most = max(most, len(os.listdir("/proc/self/fd")))
    assert (folders, names) == (WALKED + 1, WALKED / 100 + 1)
    assert most < before + 10
    remove_tree(tmp_path / "folder")


_MOUNTED = """
import os, sys
from pathlib import Path
from remuda.lib.safe_paths import make_below, open_folder, remove_below, remove_tree, walk
base = Path(sys.argv[1])
def refused(work, *words):
    try:
        work(*words)
    except OSError as error:
        assert "mount point" in str(error), error
    else:
        raise AssertionError("it was not refused")
refused(remove_tree, base / "work")
refused(remove_tree, base / "work/point")
refused(remove_below, base, "work/a/point")
refused(make_below, base, "work/point/inside")
assert not any("file" in found.names for found in walk(open_folder(str(base / "work"))))
"""


@as_root
@pytest.mark.parametrize("how", ["mount --bind {precious} {point}", "mount -t tmpfs none {point}; touch {point}/file"])
def test_nothing_goes_beyond_a_mount_point(tmp_path: Path, how: str) -> None:
    precious = tmp_path / "precious"
    (precious / "inside").mkdir(parents=True)
    (precious / "file").touch()
    points = [tmp_path / "base/work/a/point", tmp_path / "base/work/point"]
    for point in points:
        point.mkdir(parents=True)
    mounting = "; ".join(how.format(precious=precious, point=point) for point in points)
    script = f'set -e; mount --make-rprivate /; {mounting}; exec "$0" -c "$1" "$2"'
    words = ["unshare", "-m", "sh", "-c", script, sys.executable, _MOUNTED, str(tmp_path / "base")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in precious.iterdir()) == ["file", "inside"]
    remove_tree(tmp_path / "base")


def test_mount_points_are_told_by_their_names() -> None:
    lines = (
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:1 / /b/work rw - tmpfs none rw\n"
        "3 1 0:1 / /b/work/x\\040y\\303\\251 rw - tmpfs none rw\n4 1 0:1 / /b/workshop rw - tmpfs none rw\n"
    )
    assert mounts_below("/b/work", lines) == ["/b/work/x y\u00e9"]


def test_a_file_is_opened_only_where_it_lies_inside(tmp_path: Path) -> None:
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
        # Nothing serves this number, so whoever opens it gets ENXIO.
        with pytest.raises(OSError, match="not a plain file"):
            open_inside(tmp_path, name, follow=True)


def test_a_file_is_put_in_the_place_of_a_link(tmp_path: Path) -> None:
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
