"""Signing and verifying files with the real openssl; the `cryptography` library checks the signatures, too."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.signatures.statements import NAME, SUFFIX, digest_below, read_statement

RunHere = Callable[..., dict[str, Any]]


def read_public_key(key: Path) -> str:
    return subprocess.run(["openssl", "pkey", "-in", key, "-pubout"], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    path.chmod(0o600)
    return path


@pytest.fixture
def public(key: Path) -> str:
    return read_public_key(key)


@pytest.fixture
def files(run_here: RunHere, tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "out/deep").mkdir(parents=True)
    (root / "out/app").write_bytes(b"program\n")
    (root / "out/deep/data").write_bytes(bytes(600_000))
    (root / "out/link").symlink_to("app")
    (root / "other").write_text("not selected")
    return root


def test_signed_file_verifies_and_changed_one_does_not(run_here: RunHere, key: Path, public: str, files: Path) -> None:
    outputs = run_here("sign", key=str(key), paths=["out"], about={"job": {"id": 7}})
    assert outputs["files"] == 3
    assert outputs["digests"]["out/app"] == hashlib.sha256(b"program\n").hexdigest()
    verified = run_here("verify", public_key=public)
    assert verified["key_id"] == outputs["key_id"]
    assert verified["about"]["job"] == {"id": 7}
    assert run_here("verify", public_key=public, paths=["out/app"])["files"] == 3
    (files / "out/app").write_bytes(b"program!")
    with pytest.raises(StepError, match="1 files are missing, changed or not signed"):
        run_here("verify", public_key=public)
    (files / "out/app").unlink()
    with pytest.raises(StepError, match="1 files are missing, changed or not signed"):
        run_here("verify", public_key=public)


def test_an_unsigned_file_does_not_verify(run_here: RunHere, key: Path, public: str, files: Path) -> None:
    run_here("sign", key=str(key), paths=["out"])
    with pytest.raises(StepError, match="1 files are missing, changed or not signed"):
        run_here("verify", public_key=public, paths=["out", "other"])
    with pytest.raises(StepError, match="nothing to verify"):
        run_here("verify", public_key=public, paths=["nothing"])


@pytest.mark.parametrize("path", ["out", "out/", "./out/**", "out/*", "o{ut,ff}/app", ".", "**/app", "out/app"])
def test_missing_signed_file_does_not_verify(run_here: RunHere, key: Path, public: str, files: Path, path: str) -> None:
    run_here("sign", key=str(key), paths=["out", "other"])
    assert run_here("verify", public_key=public, paths=[path, "other"])["files"] == 4
    (files / "out/app").unlink()
    with pytest.raises(StepError, match="1 files are missing, changed or not signed"):
        run_here("verify", public_key=public, paths=[path, "other"])
    assert run_here("verify", public_key=public, paths=["other", "out/deep"])["files"] == 4


def test_an_emptied_folder_does_not_verify(run_here: RunHere, key: Path, public: str, files: Path) -> None:
    run_here("sign", key=str(key), paths=["out"])
    shutil.rmtree(files / "out")
    (files / "out").mkdir()
    with pytest.raises(StepError, match="3 files are missing, changed or not signed"):
        run_here("verify", public_key=public, paths=["out"])
    (files / "empty").mkdir()
    with pytest.raises(StepError, match="nothing to verify"):
        run_here("verify", public_key=public, paths=["empty"])


def test_changed_statement_or_key_fails(run_here: RunHere, key: Path, public: str, files: Path, tmp_path: Path) -> None:
    run_here("sign", key=str(key), paths=["out"])
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other], check=True)
    other_public_key = read_public_key(other)
    with pytest.raises(StepError, match="was not signed with the key"):
        run_here("verify", public_key=other_public_key)
    statement = files / NAME
    statement.write_bytes(statement.read_bytes().replace(b"out/app", b"out/apq"))
    with pytest.raises(StepError, match="was not signed with the key"):
        run_here("verify", public_key=public)


def test_other_library_and_openssl_accept_the_signature(run_here: RunHere, key: Path, public: str, files: Path) -> None:
    outputs = run_here("sign", key=str(key), paths=["out"])
    data, signature = (files / NAME).read_bytes(), (files / (NAME + SUFFIX)).read_bytes()
    loaded_key = load_pem_public_key(public.encode())
    assert isinstance(loaded_key, Ed25519PublicKey)
    loaded_key.verify(signature, data)
    with pytest.raises(InvalidSignature):
        loaded_key.verify(signature, data + b" ")
    (files / "public.pem").write_text(public)
    command = f"openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in {NAME} -sigfile {NAME}{SUFFIX}".split()
    assert subprocess.run(command, cwd=files, check=False, capture_output=True).returncode == 0
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", files / "public.pem", "-outform", "DER"], check=True, capture_output=True
    ).stdout
    assert outputs["key_id"] == f"sha256:{hashlib.sha256(der).hexdigest()}"


def test_statement_on_protection(run_here: RunHere, key: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("sign", key=str(key), paths=["out"])["protection"] == "advisory"
    assert "does not prove that the runner made it" in capsys.readouterr().out
    assert run_here("sign", key=str(key), paths=["out"], apart=True)["protection"] == "enforced"
    statement = read_statement((files / NAME).read_bytes())
    assert statement.predicate["protection"] == "enforced"
    assert NAME not in statement.digests


def test_links_of_the_job_are_not_followed(run_here: RunHere, key: Path, files: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("of another user")
    (files / NAME).symlink_to(victim)
    (files / "way").symlink_to(tmp_path)
    os.mkfifo(files / "pipe")
    outputs = run_here("sign", key=str(key), paths=["out/app", "way/victim", "pipe", "way"])
    assert set(outputs["digests"]) == {"out/app", "way"}
    assert victim.read_text() == "of another user"
    assert not (files / NAME).is_symlink()
    assert digest_below(files, "../victim") is None


def test_signing_no_files_removes_the_old_signature(run_here: RunHere, key: Path, files: Path) -> None:
    run_here("sign", key=str(key), paths=["out"])
    assert run_here("sign", key=str(key), paths=["nothing"])["statement"] == ""
    assert not (files / NAME).exists()
    assert not (files / (NAME + SUFFIX)).exists()


def test_unusable_keys_and_paths_are_refused(run_here: RunHere, key: Path, files: Path, tmp_path: Path) -> None:
    key.chmod(0o644)
    with pytest.raises(PlatformError, match="chmod 600"):
        run_here("sign", key=str(key), paths=["out"])
    with pytest.raises(PlatformError, match="openssl genpkey -algorithm ed25519"):
        run_here("sign", key=str(tmp_path / "none"), paths=["out"])
    rsa = tmp_path / "rsa.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "rsa", "-out", rsa], check=True, capture_output=True)
    rsa.chmod(0o600)
    with pytest.raises(StepError, match="not an Ed25519 key"):
        run_here("sign", key=str(rsa), paths=["out"])
    key.chmod(0o600)
    with pytest.raises(StepError, match="input statement"):
        run_here("sign", key=str(key), paths=["out"], statement="../elsewhere")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"null", json.dumps({"_type": "x", "predicateType": "y"}).encode()]
)
def test_invalid_statements_are_refused(text: bytes) -> None:
    with pytest.raises(StepError, match=r"the statement has another type|not a statement"):
        read_statement(text)
