"""TLS files of runners: `load` and `manager check` name the file, its key and line, and what is wrong."""

import subprocess
from pathlib import Path

import pytest
from tests.support.servers.tls_server import Authority

from remuda.cli.main import call
from remuda.manager.config.load import load
from remuda.manager.errors import ConfigError

RUNNER = '[[runners]]\nname = "one"\nurl = "https://gitlab.example"\ntoken = "glrt-abc"\nexecutor = "shell"\n'


def write_config(folder: Path, *lines: str) -> Path:
    file = folder / "config.toml"
    file.write_text(RUNNER + "".join(f"{line}\n" for line in lines))
    file.chmod(0o600)
    return file


def read_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the problem of a file, which `load` and `manager check` must report with the same words."""
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert call(["manager", "check", "--config", str(file)]) == 1
    assert f"problem: {caught.value}" in capsys.readouterr().out
    return str(caught.value)


def test_valid_files_of_all_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("client")
    file = write_config(
        tmp_path,
        f'tls-ca-file = "{authority.file}"',
        f'tls-cert-file = "{certificate}"',
        f'tls-key-file = "{key}"',
    )
    assert load(file).config.runners[0].tls_key_file == str(key)
    assert call(["manager", "check", "--config", str(file)]) == 0


@pytest.mark.parametrize("key", ["ca", "cert", "key"])
def test_a_missing_file(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, private = Authority(tmp_path / "tls").issue("client")
    files = {"ca": certificate, "cert": certificate, "key": private} | {key: tmp_path / "gone.pem"}
    file = write_config(tmp_path, *(f'tls-{name}-file = "{path}"' for name, path in files.items()))
    line = 6 + list(files).index(key)
    assert read_problem(file, capsys) == (
        f"{file}:{line}: runners[0].tls-{key}-file: {tmp_path}/gone.pem: no such file; correct the path, or write the "
        "file there"
    )


def test_files_that_are_not_pem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = Authority(tmp_path / "tls").issue("client")
    text = tmp_path / "text.pem"
    text.write_text("not a certificate\n")
    assert f":6: runners[0].tls-ca-file: {text}: has no certificate in PEM form" in read_problem(
        write_config(tmp_path, f'tls-ca-file = "{text}"'), capsys
    )
    swapped = write_config(tmp_path, f'tls-cert-file = "{certificate}"', f'tls-key-file = "{certificate}"')
    assert f":7: runners[0].tls-key-file: {certificate}: has no private key in PEM form" in read_problem(
        swapped, capsys
    )
    swapped = write_config(tmp_path, f'tls-cert-file = "{key}"', f'tls-key-file = "{key}"')
    assert f":6: runners[0].tls-cert-file: {key}: has no certificate in PEM form" in read_problem(swapped, capsys)


def test_a_key_of_another_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path / "tls")
    certificate, _ = authority.issue("first")
    _, key = authority.issue("second")
    file = write_config(tmp_path, f'tls-cert-file = "{certificate}"', f'tls-key-file = "{key}"')
    assert f":7: runners[0].tls-key-file: {key}: does not belong to the certificate {certificate}" in read_problem(
        file, capsys
    )


def test_a_key_with_a_passphrase_is_refused_without_asking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = Authority(tmp_path / "tls").issue("client")
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    file = write_config(tmp_path, f'tls-cert-file = "{certificate}"', f'tls-key-file = "{locked}"')
    assert f":7: runners[0].tls-key-file: {locked}: needs a passphrase, and the manager has none" in read_problem(
        file, capsys
    )


def test_an_unreadable_file_beside_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs = tmp_path / "certs"
    certs.mkdir()
    (certs / "gitlab.example.crt").write_text("not a certificate\n")
    text = read_problem(write_config(tmp_path), capsys)
    assert f"runners[0].tls-ca-file: {certs}/gitlab.example.crt: has no certificate in PEM form" in text
