"""`remuda artifacts verify` with files and archives that the step `sign` has signed."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from remuda.cli.main import call
from remuda.stdsteps.common.archive import write_zip
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.sign import step
from remuda.stdsteps.signatures.statements import NAME, SUFFIX


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two signed files; the keys lie beside it."""
    key, folder = tmp_path / "key", tmp_path / "work"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    key.chmod(0o600)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", tmp_path / "public.pem"], check=True)
    (folder / "out").mkdir(parents=True)
    (folder / "out/app").write_text("program")
    (folder / "out/link").symlink_to("app")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("REMUDA_OUTPUTS", raising=False)
    step.run(Inputs({"key": str(key), "paths": ["out"]}))
    return folder


def verify(*words: str) -> int:
    return call(["artifacts", "verify", *words, "--key", "../public.pem"])


def test_signed_files_verify_and_changed_ones_do_not(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify() == 0
    assert "verified: 2 files, signed with sha256:" in capsys.readouterr().out
    assert verify("out/app") == 0
    (work / "new").write_text("")
    assert verify("out/app", "new") == 1
    assert "new: not signed\nnot verified" in capsys.readouterr().out
    (work / "out/app").write_text("program.")
    capsys.readouterr()
    assert verify("--output", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["verified"], report["problems"]) == (False, ["out/app: changed since it was signed"])
    assert verify("out/link") == 0


def test_an_archive_brings_its_own_statement(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = work / "artifacts.zip"
    names = {"out", "out/app", "out/link", NAME, NAME + SUFFIX}
    write_zip(archive, work, names)
    assert verify("artifacts.zip") == 0
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("more", b"x")
    assert verify("artifacts.zip") == 1
    assert "artifacts.zip: more: not signed" in capsys.readouterr().out
    (work / "out/app").write_text("another")
    write_zip(archive, work, names)
    assert verify("artifacts.zip") == 1
    write_zip(archive, work, names - {"out/app"})
    assert verify("artifacts.zip") == 1
    assert "out/app: signed, but missing" in capsys.readouterr().out


def test_a_file_with_two_problems_counts_once(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = work / "artifacts.zip"
    write_zip(archive, work, {"out", "out/app", "out/link", NAME, NAME + SUFFIX})
    with zipfile.ZipFile(archive, "a") as opened, pytest.warns(UserWarning, match="Duplicate name"):
        opened.writestr("out/app", b"another")
    assert verify("artifacts.zip", "--output", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["problems"] == [
        "artifacts.zip: out/app: twice in the archive",
        "artifacts.zip: out/app: changed since it was signed",
    ]
    assert report["files"] == 1


def test_a_statement_by_another_key_is_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run("openssl genpkey -algorithm ed25519 | openssl pkey -pubout >../public.pem", shell=True, check=True)
    assert verify() == 1
    assert "not signed with this key" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--statement", "none.json"], "none.json: No such file"),
        (["../public.pem"], "does not lie below"),
        (["none.zip"], "none.zip: No such file"),
    ],
)
def test_files_that_cannot_be_checked_are_bad_input(work: Path, words: list[str], text: str) -> None:
    with pytest.raises(Exception, match=text) as caught:
        verify(*words)
    assert getattr(caught.value, "exit", None) == 2


def test_a_damaged_archive_is_not_verified(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for damaged in ("out/app", NAME):
        path = work / "artifacts.zip"
        path.unlink(missing_ok=True)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in (NAME, NAME + SUFFIX, "out/app"):
                archive.write(work / name, name)
            entry = archive.getinfo(damaged)
        data = bytearray(path.read_bytes())
        begin = entry.header_offset + 30 + len(damaged)
        data[begin : begin + 4] = b"\xff" * 4
        path.write_bytes(data)
        assert verify("artifacts.zip") == 1
        assert f"{damaged}: cannot be read out of the archive" in capsys.readouterr().out
