"""A server with a certificate of a private CA: the manager, its commands, git and uploads of jobs accept it."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.cells.served_cell import ServedCell
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cli.main import call
from remuda.manager.config.certificates import authority_of, with_certificates
from remuda.manager.config.load import load
from remuda.manager.config.values import RunnerConfig
from remuda.manager.errors import RegisterError

PIPELINE = """
job:
  script: ['cat file.txt; grep -c BEGIN "$CI_SERVER_TLS_CA_FILE"; echo made > made.txt']
  artifacts: {paths: [made.txt]}
"""


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for localhost and its key. Returns both paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "server.crt", folder / "server.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


@pytest.fixture
async def tls_url(tmp_path: Path, cell: ServedCell) -> AsyncIterator[str]:
    """Put a TLS proxy in front of the cell. Yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(tmp_path))
    port = int(cell.url.rpartition(":")[2])

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cell_reader, cell_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pipe(reader, cell_writer))
            group.create_task(pipe(cell_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield f"https://localhost:{server.sockets[0].getsockname()[1]}"
    server.close()


async def run_job(cell: ServedCell, harness: ManagerHarness) -> dict[str, Any]:
    """Run the job of the first pipeline. Returns the job with its log."""
    async with harness.manager():
        [job] = (await cell.wait_for_jobs()).values()
    await harness.close()
    return job


@pytest.mark.parametrize("is_named", [True, False])
async def test_server_certificate_is_trusted(tmp_path: Path, cell: ServedCell, tls_url: str, *, is_named: bool) -> None:
    harness = ManagerHarness(tmp_path, cell)
    words = ["manager", "register", "--url", tls_url, "--clone-url", tls_url, "--config", str(harness.config)]
    words += ["--token", cell.new_runner().token]
    with pytest.raises(RegisterError, match="cannot be reached"):
        await asyncio.to_thread(call, words)
    if is_named:
        words += ["--tls-ca-file", str(tmp_path / "server.crt")]
    else:
        (tmp_path / "certs").mkdir()
        (tmp_path / "server.crt").rename(tmp_path / "certs" / "localhost.crt")
    await asyncio.to_thread(call, words)
    assert await asyncio.to_thread(call, ["manager", "verify", "--config", str(harness.config)]) == 0
    await asyncio.to_thread(cell.new_project, "app", PIPELINE, **{"file.txt": "of the repository\n"})
    job = await run_job(cell, harness)
    assert job["status"] == "success", job["log"]
    assert "of the repository" in job["log"]
    assert job["artifacts_file"]["filename"] == "artifacts.zip"


async def test_custom_drivers_git_accepts_servers_certificate(tmp_path: Path, cell: ServedCell, tls_url: str) -> None:
    run = tmp_path / "run.sh"
    run.write_text('#!/bin/bash\nbash "$1" || exit "$BUILD_FAILURE_EXIT_CODE"\n')
    run.chmod(0o755)
    harness = ManagerHarness(tmp_path, cell)
    harness.config.write_text(
        f'[[runners]]\nname = "driven"\nurl = "{tls_url}"\nclone_url = "{tls_url}"\n'
        f'token = "{cell.new_runner().token}"\n'
        f'tls-ca-file = "{tmp_path}/server.crt"\nexecutor = "custom"\nbuilds_dir = "{tmp_path}/b"\n'
        f'cache_dir = "{tmp_path}/c"\n[runners.custom]\nrun_exec = "{run}"\n'
    )
    await asyncio.to_thread(cell.new_project, "app", "job: {script: [cat file.txt]}", **{"file.txt": "its text\n"})
    job = await run_job(cell, harness)
    assert (job["status"], "its text" in job["log"]) == ("success", True), job["log"]


def test_certificates_beside_the_configuration_file(tmp_path: Path) -> None:
    runner = RunnerConfig(url="https://gitlab.example:8443/x", token="t", executor="shell")
    assert with_certificates(runner, tmp_path / "certs") == runner
    (tmp_path / "certs").mkdir()
    for name in ("gitlab.example.crt", "gitlab.example.auth.crt", "gitlab.example.auth.key"):
        (tmp_path / "certs" / name).write_text(name)
    completed = with_certificates(runner, tmp_path / "certs")
    assert Path(completed.tls_ca_file).name == "gitlab.example.crt"
    assert Path(completed.tls_cert_file).name == "gitlab.example.auth.crt"
    assert authority_of(completed) == "gitlab.example.crt"
    explicit = RunnerConfig(url="https://gitlab.example", tls_ca_file="/nowhere", tls_cert_file="c", tls_key_file="k")
    assert with_certificates(explicit, tmp_path / "certs") == explicit
    assert authority_of(explicit) == ""
    plain = RunnerConfig(url="http://gitlab.example")
    assert with_certificates(plain, tmp_path / "certs") == plain
    valid, key = write_certificate(tmp_path)
    for name in ("gitlab.example.crt", "gitlab.example.auth.crt"):
        (tmp_path / "certs" / name).write_text(valid.read_text())
    (tmp_path / "certs" / "gitlab.example.auth.key").write_text(key.read_text())
    config = tmp_path / "config.toml"
    config.write_text('[[runners]]\nurl = "https://gitlab.example"\ntoken = "t"\nexecutor = "shell"\n')
    assert load(config).config.runners[0].tls_ca_file == completed.tls_ca_file
