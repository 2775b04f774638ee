import io
import os
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.stdsteps.common.archive import DamagedArchiveError, has_comment, unpack_zip, write_zip
from remuda.stdsteps.common.errors import StepError

LINK, FILE, FOLDER = stat.S_IFLNK | 0o777, stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755


def create_archive(path: Path, *entries: tuple[str, bytes, int]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return path


def test_round_trip_keeps_modes_links_and_empty_folders(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a/empty").mkdir(parents=True)
    (source / "a/run").write_bytes(b"#!")
    (source / "a/run").chmod(0o755)
    (source / "a/link").symlink_to("run")
    target.mkdir()
    write_zip(tmp_path / "zip", source, ["a", "a/empty", "a/run", "a/link"])
    assert unpack_zip(tmp_path / "zip", target) == 4
    assert (target / "a/empty").is_dir()
    assert (target / "a/run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "a/link") == "run"


def test_round_trip_keeps_backslashes_in_names(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    names = {"dev-disk-by\\x2dlabel.device", "\\x2d.mount", "folder\\x2d", "folder\\x2d/link\\"}
    (source / "folder\\x2d").mkdir(parents=True)
    (source / "folder\\x2d/link\\").symlink_to("a\\b")
    (source / "dev-disk-by\\x2dlabel.device").write_text("x")
    (source / "\\x2d.mount").write_text("x")
    target.mkdir()
    write_zip(tmp_path / "zip", source, names)
    assert unpack_zip(tmp_path / "zip", target) == 4
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == names


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (0, 0))
    write_zip(tmp_path / "1.zip", tmp_path, ["a", "b"])
    write_zip(tmp_path / "2.zip", tmp_path, ["b", "a"])
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", b"x", FILE)],
        [("/etc/out", b"x", FILE)],
        [("a/../../out", b"x", FILE)],
        [("a\\..\\out", b"x", FILE)],
        [("..\\out", b"x", FILE)],
        [("a/..\\..\\out", b"x", LINK)],
        [("existing/out", b"x", FILE)],
        [("existing/deep/out", b"x", FILE)],
        [("existing/out/", b"", FOLDER)],
        [("existing/", b"", FOLDER)],
        [("existing/out", b"x", LINK)],
        [("inner/out", b"x", FILE)],
        [("folder", b"x", FILE)],
        [("folder", b"x", LINK)],
        [("link", b"x" * 5000, LINK)],
        [("link", b"", LINK)],
        [("link", b"x\0y", LINK)],
        [("link", b"../outside", LINK), ("link/out", b"x", LINK)],
        [("link", b"../outside", LINK), ("link/out", b"x", FILE)],
        [("link", b"../outside", LINK), ("link/", b"", FOLDER)],
    ],
)
def test_outside_entries_and_invalid_links_are_refused(tmp_path: Path, entries: list[tuple[str, bytes, int]]) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "existing").symlink_to(tmp_path / "outside")
    (root / "inner").symlink_to("folder")
    with pytest.raises(StepError):
        unpack_zip(create_archive(tmp_path / "zip", *entries), root)
    assert not list((tmp_path / "outside").iterdir())
    assert not list((root / "folder").iterdir())
    assert not (tmp_path / "out").exists()


def test_links_are_unpacked_unchanged(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "venv/bin").mkdir(parents=True)
    (source / "venv/lib").mkdir()
    target.mkdir()
    links = {"bin/python": "/usr/bin/python3", "lib64": "lib", "up": "../../..", "loop": "loop", "gone": "nothing"}
    for name, destination in links.items():
        (source / "venv" / name).symlink_to(destination)
    names = ["venv", "venv/bin", "venv/lib", *(f"venv/{name}" for name in links)]
    for _ in range(2):  # the second time over existing files
        write_zip(tmp_path / "zip", source, names)
        assert unpack_zip(tmp_path / "zip", target) == len(names)
        assert {name: os.readlink(target / "venv" / name) for name in links} == links


@pytest.mark.parametrize("name", [".git/config", "sub/.GIT/hooks/post-checkout", ".git", "a/.Git/"])
def test_entries_in_git_folders_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    mode = FOLDER if name.endswith("/") else FILE
    link = ("x/.git", b"/etc", LINK)
    archive = create_archive(tmp_path / "zip", (name, b"x", mode), link, (".gitignore", b"x", FILE))
    assert unpack_zip(archive, root) == 1
    assert [path.name for path in root.rglob("*")] == [".gitignore"]
    output = capsys.readouterr().out.splitlines()
    assert output == [f"WARNING: skipped 2 entries of the archive inside .git folders, such as {name!r}"]


def test_an_existing_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "victim").write_text("safe")
    (root / "file").symlink_to(tmp_path / "victim")
    unpack_zip(create_archive(tmp_path / "zip", ("file", b"new", FILE)), root)
    assert (tmp_path / "victim").read_text() == "safe"
    assert (root / "file").read_text() == "new"


def test_an_archive_with_too_large_contents_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 5_000_000)
    (tmp_path / "zip").write_bytes(data.getvalue())
    with pytest.raises(StepError, match="larger than allowed"):
        unpack_zip(tmp_path / "zip", tmp_path, largest_bytes=1_000_000)
    assert (tmp_path / "zeros").stat().st_size <= 1_000_000


def test_an_archive_with_a_too_long_list_of_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = create_archive(tmp_path / "zip", *((f"file{number}", b"", FILE) for number in range(100)))
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("remuda.stdsteps.common.archive.MOST_ENTRIES", 99)
    with pytest.raises(StepError, match="more than 99 entries"):
        unpack_zip(archive, tmp_path / "out")
    monkeypatch.setattr("remuda.stdsteps.common.archive.LARGEST_DIRECTORY_BYTES", 3000)
    with pytest.raises(StepError, match="entries is larger than 3000 bytes"):
        unpack_zip(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_archive_is_an_error_of_the_step(tmp_path: Path) -> None:
    create_archive(tmp_path / "zip", ("a", b"x" * 100, FILE))
    (tmp_path / "zip").write_bytes((tmp_path / "zip").read_bytes()[:-30])
    with pytest.raises(StepError, match="damaged"):
        unpack_zip(tmp_path / "zip", tmp_path)


@pytest.mark.parametrize("moment", [1_000_000_001, 0, -5, 2**32, 1_700_000_000.75])
def test_modification_times_are_kept_to_the_second(tmp_path: Path, moment: float) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "file").write_text("x")
    os.utime(tmp_path / "file", (moment, moment))
    write_zip(tmp_path / "zip", tmp_path, ["file"])
    unpack_zip(tmp_path / "zip", tmp_path / "target")
    assert (tmp_path / "target/file").stat().st_mtime == min(int(moment), 2**31 - 1)


def test_modification_times_without_the_extended_field_are_read(tmp_path: Path) -> None:
    unpack_zip(create_archive(tmp_path / "zip", ("file", b"x", FILE)), tmp_path)
    assert (tmp_path / "file").stat().st_mtime == 315_532_800  # 1980, the first year of zip archives


def test_a_comment_is_found_without_reading_the_archive(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    write_zip(tmp_path / "zip", tmp_path, ["file"], comment=b"this one")
    assert has_comment(tmp_path / "zip", b"this one")
    assert not has_comment(tmp_path / "zip", b"that one")
    assert not has_comment(tmp_path / "zip", b"one")
    assert not has_comment(tmp_path / "none", b"this one")
    assert not has_comment(tmp_path / "file", b"this one")


def test_a_failed_whole_unpack_leaves_no_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    entries = [("a/new", b"x", FILE), ("b", b"x", FILE), ("folder", b"x", FILE)]
    with pytest.raises(StepError, match="where the working directory has a folder"):
        unpack_zip(create_archive(tmp_path / "zip", *entries), root, whole=True)
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_a_whole_unpack_includes_git_folders_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    archive = create_archive(tmp_path / "zip", (".git/config", b"x", FILE), ("hooks/.git/config", b"x", FILE))
    assert unpack_zip(archive, root, whole=True) == 1
    assert not (root / ".git").exists()
    assert (root / "hooks/.git/config").exists()


@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_an_error_that_leaves_no_files(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        source, target, archive = Path(name, "source"), Path(name, "target"), Path(name, "zip")
        source.mkdir()
        target.mkdir()
        (source / "a").write_bytes(bytes(range(256)) * 20)
        (source / "b").symlink_to("a")
        write_zip(archive, source, ["a", "b"], comment=b"about it")
        packed = bytearray(archive.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
        archive.write_bytes(packed[: data.draw(st.integers(0, len(packed)) | st.just(len(packed)))])
        try:
            unpack_zip(archive, target, whole=True)
        except (DamagedArchiveError, StepError, OSError):
            assert not [path for path in target.rglob("*") if not path.is_dir()]


def test_a_folder_that_was_replaced_by_a_link_out_is_not_packed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "inside").mkdir(parents=True)
    (root / "inside/file").write_text("public")
    (root / "out").symlink_to(outside)
    (root / "way").symlink_to("inside")
    with pytest.raises(OSError, match="leads out of the folder"):
        write_zip(tmp_path / "bad.zip", root, ["out/file"])
    write_zip(tmp_path / "good.zip", root, ["way/file"])
    with zipfile.ZipFile(tmp_path / "good.zip") as archive:
        assert archive.read("way/file") == b"public"
