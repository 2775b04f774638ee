import gzip
import io
import zipfile
from pathlib import Path

import pytest

from remuda.lib.exits import CommandError
from remuda.localrun.artifacts import extract, folder_name, put_report
from remuda.wire.user_api import FileInfo


@pytest.mark.parametrize(
    ("job", "folder"), [("build", "build"), ("test 1/4", "test 1_4"), ("..", "_.."), ("../../etc", "_.._.._etc")]
)
def test_folder_names_of_jobs_stay_inside(job: str, folder: str) -> None:
    assert folder_name(job) == folder


def test_files_keep_their_permissions_and_stay_below_the_folder(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        program = zipfile.ZipInfo("bin/tool")
        program.external_attr = 0o100755 << 16
        packed.writestr(program, "#!/bin/sh\n")
        packed.writestr("../../outside", "x")
    extract(archive, tmp_path / "a" / "b" / "job")
    assert (tmp_path / "a" / "b" / "job" / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "a" / "outside").exists()
    assert (tmp_path / "a" / "b" / "job" / "outside").exists()


def test_an_archive_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("a", "x" * 60)
        packed.writestr("b", "x" * 60)
    monkeypatch.setattr("remuda.localrun.artifacts.LARGEST_BYTES", 100)
    with pytest.raises(CommandError, match="larger than 100 bytes when unpacked"):
        extract(archive, tmp_path / "job")
    monkeypatch.setattr("remuda.stdsteps.common.archive.MOST_ENTRIES", 1)
    with pytest.raises(CommandError, match="more than 1 entries"):
        extract(archive, tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_a_report_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.localrun.artifacts.LARGEST_BYTES", 1_000_000)
    file = FileInfo(type="junit", filename="junit.xml.gz", format="gzip")
    with pytest.raises(CommandError, match="larger than 1000000 bytes"):
        put_report(io.BytesIO(gzip.compress(bytes(5_000_000))), file, tmp_path)
    assert (tmp_path / "junit.xml").stat().st_size < 2_000_000


def test_data_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a zip archive"):
        extract(io.BytesIO(b"not a zip"), tmp_path / "job")


def test_a_report_is_unpacked_file_by_file(tmp_path: Path) -> None:
    data = gzip.compress(b"<one/>") + gzip.compress(b"<two/>")
    file = FileInfo(type="junit", filename="junit.xml.gz", format="gzip")
    put_report(io.BytesIO(data), file, tmp_path / "reports")
    assert {path.name: path.read_bytes() for path in (tmp_path / "reports").iterdir()} == {
        "junit.xml": b"<one/>",
        "junit-2.xml": b"<two/>",
    }


def test_an_uncompressed_report_is_copied_as_it_is(tmp_path: Path) -> None:
    put_report(io.BytesIO(b"{}"), FileInfo(type="sast", filename="../gl-sast-report.json"), tmp_path)
    assert (tmp_path / "gl-sast-report.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    "data",
    [b"nonsense", gzip.compress(b"<one/>")[:-1], gzip.compress(b"<one/>") + gzip.compress(b"<two/>")[:12]],
    ids=["no gzip", "cut off", "second file cut off"],
)
def test_a_damaged_report_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CommandError, match=r"junit\.xml is damaged"):
        put_report(io.BytesIO(data), FileInfo(type="junit", filename="junit.xml.gz", format="gzip"), tmp_path)


def pack(*names: str) -> io.BytesIO:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for name in names:
            packed.writestr(name, "evil")
    return archive


def test_artifacts_are_not_written_through_links(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    (home / "keys").write_text("mine")
    (out / "test").symlink_to(home)
    with pytest.raises(CommandError, match=f"{out}/test is a link.*; remove it or name another folder"):
        extract(pack("keys"), out, ("test",))
    (out / "job" / "deep").mkdir(parents=True)
    (out / "job" / "deep" / "link").symlink_to(home)
    (out / "job" / "file").symlink_to(home / "keys")
    for name in ("deep/link/keys", "file"):
        with pytest.raises(CommandError, match=f"{out}/job/(deep/link|file) is a link"):
            extract(pack(name), out / "job")
    assert (home / "keys").read_text() == "mine"
    assert [path.name for path in home.iterdir()] == ["keys"]


def test_reports_are_not_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("mine")
    out = tmp_path / "out"
    (out / "reports").mkdir(parents=True)
    (out / "reports" / "sast.json").symlink_to(tmp_path / "keys")
    for file in (
        FileInfo(type="sast", filename="sast.json"),
        FileInfo(type="sast", filename="sast.json", format="gzip"),
    ):
        with pytest.raises(CommandError, match=r"sast\.json is a link"):
            put_report(io.BytesIO(gzip.compress(b"{}")), file, out, ("reports",))
    assert (tmp_path / "keys").read_text() == "mine"


def test_nothing_is_written_to_a_folder_of_git(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extract(pack(".git/hooks/pre-commit", "lib/.GIT/config", "a.txt"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert "left out 2 files" in capsys.readouterr().err


def test_a_second_run_replaces_the_files_of_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        extract(pack("bin/tool"), tmp_path, ("build",))
    assert (tmp_path / "build" / "bin" / "tool").read_text() == "evil"
    with pytest.raises(CommandError, match="bin exists and is not a file"):
        extract(pack("bin"), tmp_path, ("build",))
    with pytest.raises(CommandError, match="tool exists and is not a folder"):
        extract(pack("bin/tool/x"), tmp_path, ("build",))
