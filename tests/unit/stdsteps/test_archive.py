import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from remuda.stdsteps.archive import unpack_zip, write_zip
from remuda.stdsteps.errors import StepError

LINK, FILE = stat.S_IFLNK | 0o777, stat.S_IFREG | 0o644


def an_archive(path: Path, *entries: tuple[str, bytes, int]) -> Path:
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
        [("link", b"/etc", LINK)],
        [("link", b"../..", LINK)],
        [("existing/out", b"x", FILE)],
        [("e", b"d/sub/..", LINK), ("d/sub", b"..", LINK)],
        [("loop", b"loop", LINK)],
        [("folder", b"x", FILE)],
        [("link", b"x" * 5000, LINK)],
    ],
)
def test_what_leads_out_is_refused(tmp_path: Path, entries: list[tuple[str, bytes, int]]) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (root / "existing").symlink_to(tmp_path / "outside")
    with pytest.raises(StepError):
        unpack_zip(an_archive(tmp_path / "zip", *entries), root)
    assert not list((tmp_path / "outside").iterdir())
    assert not (tmp_path / "out").exists()
    for path in root.rglob("*"):
        assert path.name == "existing" or path.is_symlink() or path.resolve().is_relative_to(root)


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "victim").write_text("safe")
    (root / "file").symlink_to(tmp_path / "victim")
    unpack_zip(an_archive(tmp_path / "zip", ("file", b"new", FILE)), root)
    assert (tmp_path / "victim").read_text() == "safe"
    assert (root / "file").read_text() == "new"


def test_an_archive_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 5_000_000)
    (tmp_path / "zip").write_bytes(data.getvalue())
    with pytest.raises(StepError, match="larger than allowed"):
        unpack_zip(tmp_path / "zip", tmp_path, largest_bytes=1_000_000)
    assert (tmp_path / "zeros").stat().st_size <= 1_000_000


def test_a_damaged_archive_is_no_traceback(tmp_path: Path) -> None:
    an_archive(tmp_path / "zip", ("a", b"x" * 100, FILE))
    (tmp_path / "zip").write_bytes((tmp_path / "zip").read_bytes()[:-30])
    with pytest.raises(StepError, match="damaged"):
        unpack_zip(tmp_path / "zip", tmp_path)
