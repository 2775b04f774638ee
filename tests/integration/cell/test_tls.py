"""A cell that serves HTTPS with a certificate of a private authority: users, git, jobs and a renewal."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import pytest
from starlette.types import Receive, Scope, Send
from tests.support.cells.cell_process import CellProcess
from tests.support.certificates import Authority
from tests.support.runners.manager_harness import ManagerHarness

from remuda.cell.http.edge.app import CellApp
from remuda.cell.server import CellServer
from remuda.cell.settings import CellSettings
from remuda.cell.tls import ServerCertificate
from remuda.cli.main import call
from remuda.lib.clock import SystemClock
from remuda.testing.waiting import wait_until

PIPELINE = """
job:
  script:
    - echo "$CI_SERVER_PROTOCOL $CI_PROJECT_URL"
    - cat file.txt
    - echo made > made.txt
  artifacts: {paths: [made.txt]}
"""


class LongAnswer:
    """An application whose answer fits into the buffers of asyncio, and not into those of the kernel."""

    SIZE = 50_000

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(self.SIZE).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(self.SIZE)})

    def append_trace_now(self, cycle: object) -> bool:
        return False


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def cell(tmp_path: Path, authority: Authority) -> Iterator[CellProcess]:
    certificate, key = authority.issue("localhost", "127.0.0.1")
    process = CellProcess(tmp_path / "cell", tls_certificate=certificate, tls_key=key)
    process.authority = authority.file
    with process:
        yield process


def environment_for(cell: CellProcess, folder: Path) -> dict[str, str]:
    """Variables of a user who trusts the authority and has the administrator's token."""
    return os.environ | {
        "HOME": str(folder),
        "SSL_CERT_FILE": str(cell.authority),
        "GIT_SSL_CAINFO": str(cell.authority),
        "REMUDA_URL": cell.url,
        "REMUDA_TOKEN": cell.token,
    }


def handshake(cell: CellProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    address = urlsplit(cell.url)
    assert address.hostname
    plain = socket.create_connection((address.hostname, address.port), timeout=30)
    return context.wrap_socket(plain, server_hostname=address.hostname)


def serial_of(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def ask_for_health(connection: ssl.SSLSocket) -> bytes:
    connection.sendall(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection.recv(4096).partition(b"\r\n")[0]


def test_every_address_is_https(cell: CellProcess, tmp_path: Path) -> None:
    cell.new_project("app", PIPELINE)
    project = cell.api("GET", "/projects/root%2Fapp").json()
    assert project["http_url_to_repo"] == f"{cell.url}/root/app.git"
    assert project["web_url"].startswith("https://")
    [pipeline] = cell.until_pipelines(1)
    assert pipeline["web_url"].startswith("https://")
    runner = cell.new_runner()
    payload = runner.take()
    variables = {variable["key"]: variable["value"] for variable in payload["variables"]}
    assert payload["git_info"]["repo_url"].startswith("https://")
    assert variables["CI_SERVER_PROTOCOL"] == "https"
    assert f"{variables['CI_SERVER_HOST']}:{variables['CI_SERVER_PORT']}" == urlsplit(cell.url).netloc
    texts = json.dumps([project, pipeline, payload])
    assert "http://" not in texts
    assert f"the cell serves on {cell.url}" in cell.log


def test_git_and_the_commands_of_users(cell: CellProcess, tmp_path: Path) -> None:
    cell.new_project("app", PIPELINE)
    environment = environment_for(cell, tmp_path)
    url = cell.url.replace("https://", f"https://me:{cell.token}@")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (
        [*git, "clone", "-q", f"{url}/root/app.git", "clone"],
        [*git, "-C", "clone", "commit", "-q", "--allow-empty", "-m", "Second"],
        [*git, "-C", "clone", "push", "-q", "origin", "HEAD"],
        [sys.executable, "-m", "remuda", "job", "list"],
    ):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
    assert done.stdout.count("job") >= 2
    del environment["SSL_CERT_FILE"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "certificate" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_job_of_a_manager(cell: CellProcess, tmp_path: Path) -> None:
    harness = ManagerHarness(tmp_path, cell)
    words = ["manager", "register", "--url", cell.url, "--config", str(harness.config), "--executor", "shell"]
    words += ["--token", (await asyncio.to_thread(cell.new_runner)).token, "--tls-ca-file", str(cell.authority)]
    await asyncio.to_thread(call, words)
    await asyncio.to_thread(cell.new_project, "app", PIPELINE, **{"file.txt": "of the repository\n"})
    async with harness.manager():
        [job] = (await cell.wait_for_jobs()).values()
    await harness.close()
    assert job["status"] == "success", job["log"]
    assert "of the repository" in job["log"]
    assert f"https {cell.url}/root/app" in job["log"]
    assert job["artifacts_file"]["filename"] == "artifacts.zip"


@pytest.mark.parametrize("with_rsa", [False, True])
def test_a_renewal_reaches_new_connections_and_drops_none(
    cell: CellProcess, authority: Authority, with_rsa: bool
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    before = handshake(cell, context)
    assert ask_for_health(before) == b"HTTP/1.1 200 OK"
    authority.issue("localhost", "127.0.0.1", with_rsa=with_rsa)
    cell.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificate reloaded" in cell.log, "the cell reads the certificate")
    with handshake(cell, context) as after:
        assert serial_of(after) != serial_of(before)
        assert ask_for_health(after) == b"HTTP/1.1 200 OK"
    assert ask_for_health(before) == b"HTTP/1.1 200 OK"
    before.close()


def test_a_changed_file_is_noticed(cell: CellProcess, authority: Authority) -> None:
    authority.issue("localhost", "127.0.0.1")
    wait_until(lambda: "certificate reloaded" in cell.log, "the cell notices the certificate", 60)


def test_a_wrong_renewal_keeps_the_old_certificate(cell: CellProcess, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "cell.key").write_text("nothing")
    cell.send_signal(signal.SIGHUP)
    wait_until(lambda: "cannot use the new certificate; keeping the old one" in cell.log, "the cell reports it")
    with handshake(cell, ssl.create_default_context(cafile=str(authority.file))) as connection:
        assert ask_for_health(connection) == b"HTTP/1.1 200 OK"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_versions_and_plain_http_are_refused(cell: CellProcess, authority: Authority) -> None:
    old = ssl.create_default_context(cafile=str(authority.file))
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        handshake(cell, old)
    address = urlsplit(cell.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as plain:
        plain.sendall(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not plain.recv(4096).startswith(b"HTTP/1.1 200")
    assert cell.send("GET", "/-/health").status == 200
    assert "Traceback" not in cell.log


def test_a_stop_does_not_wait_for_idle_connections(cell: CellProcess, authority: Authority) -> None:
    idle = handshake(cell, ssl.create_default_context(cafile=str(authority.file)))
    assert ask_for_health(idle) == b"HTTP/1.1 200 OK"
    cell.send_signal(signal.SIGTERM)
    assert cell.wait(30) == 0
    assert "canceled an HTTP request" not in cell.log
    idle.close()


@pytest.mark.parametrize("header", ["", "Connection: close\r\n"], ids=["kept open", "closed after the answer"])
async def test_a_stop_lets_a_slow_client_read_all(tmp_path: Path, authority: Authority, header: str) -> None:
    """The client reads only after the server has looked for connections without unsent bytes. It does not confirm the
    end of TLS, and must not hold the stop for this."""
    certificate, key = authority.issue("localhost")
    settings = CellSettings(data=tmp_path, tls_certificate=certificate, tls_key=key, stop_seconds=60)
    started, looked = asyncio.Event(), asyncio.Event()
    server_certificate = ServerCertificate(settings, SystemClock())
    server = CellServer(cast("CellApp", LongAnswer()), settings, started.set, server_certificate)
    look = server._end_unconfirmed

    def end_unconfirmed() -> None:
        looked.set()
        look()

    server._end_unconfirmed = end_unconfirmed  # type: ignore[method-assign]
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    address = listener.getsockname()

    def ask() -> ssl.SSLSocket:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(30)
        plain.connect(address)
        client = ssl.create_default_context(cafile=str(authority.file)).wrap_socket(plain, server_hostname="localhost")
        client.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
        return client

    def read_all(client: ssl.SSLSocket) -> bytes:
        return b"".join(iter(lambda: client.recv(65536), b""))

    async with asyncio.timeout(20):
        serving = asyncio.create_task(server.serve([listener]))
        await started.wait()
        with await asyncio.to_thread(ask) as client:
            await asyncio.to_thread(wait_until, lambda: server.server_state.total_requests, "the answer is written")
            server.leave()
            await looked.wait()
            answer = await asyncio.to_thread(read_all, client)
            assert len(answer.partition(b"\r\n\r\n")[2]) == LongAnswer.SIZE
            await serving


def test_an_open_connection_takes_little_memory(cell: CellProcess, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    connections = [handshake(cell, context) for _ in range(50)]
    before = cell.peak_bytes()
    connections += [handshake(cell, context) for _ in range(200)]
    assert ask_for_health(connections[-1]) == b"HTTP/1.1 200 OK"
    grown_bytes = cell.peak_bytes() - before
    for connection in connections:
        connection.close()
    assert grown_bytes / 200 < 128 * 1024, "with asyncio's own buffers it is 280 KiB"


def test_an_unusable_certificate_ends_the_start(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "remuda", "cell", "serve", "--data", str(tmp_path / "cell"), "--listen"]
    words += ["127.0.0.1:0", "--tls-certificate", "no.crt"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"tls_certificate {tmp_path}/no.crt: cannot be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "cell").exists()


def test_warnings_are_logged_at_the_start(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("other.example", "127.0.0.1")
    key.chmod(0o604)
    process = CellProcess(tmp_path / "cell", tls_certificate=certificate, tls_key=key)
    process.authority = authority.file
    with process:
        wait_until(lambda: "other users of this machine can read the key" in process.log, "the warning")
