"""Shells at the session server of a gitlab-runner: a real WebSocket with TLS, and a server that answers as a runner."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.cell.settings import CellSettings
from remuda.cell.shells import runner_sessions
from remuda.cell.shells.files import ShellFiles
from remuda.cell.shells.port import INPUT, OUTPUT, About
from remuda.cell.shells.runner_sessions import LARGEST_MESSAGE_BYTES, PROTOCOL, RunnerSessions
from remuda.cell.shells.shells import WINDOW_BYTES, Shells
from remuda.lib.clock import SystemClock
from remuda.model.job import JobId, JobState, RunnerId
from remuda.testing.builders import a_job
from remuda.testing.waiting import until
from remuda.wire.shell import DATA, EXIT, FROM_COMMAND, OPENED, REFUSED, Frames, WantedShell, frame, size_frame

SECRET = "of this job"
JOB = a_job(id=JobId(7), state=JobState.RUNNING, runner_id=RunnerId(3), system_id="s_1")


def a_certificate() -> tuple[str, str]:
    """PEM texts of a certificate for 127.0.0.1, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "runner")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    encoding = serialization.Encoding.PEM
    return certificate.public_bytes(encoding).decode(), key.private_bytes(encoding, *form).decode()


class SessionServer:
    """Answers /exec with `status`, or opens a terminal that prints in capitals what it gets, until it gets `exit`."""

    def __init__(self) -> None:
        self.status = 101
        self.first_message, self.repeats = b"", 1
        self.reads, self.stopped = True, asyncio.Event()
        self.certificate, self.key = a_certificate()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != SECRET:
            return web.Response(status=401)
        if self.status != 101:
            return web.Response(status=self.status, headers={"Location": "https://127.0.0.1:1/"})
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        assert socket.ws_protocol == PROTOCOL
        if not self.reads:
            assert request.transport is not None
            request.transport.pause_reading()
            await self.stopped.wait()
            request.transport.abort()
            return socket
        for _ in range(self.repeats if self.first_message else 0):
            await socket.send_bytes(self.first_message)
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            await socket.send_bytes(message.data.upper())
            if message.data == b"exit\n":
                break
        await socket.close()
        return socket


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SessionServer]:
    state = SessionServer()
    (tmp_path / "server.pem").write_text(state.certificate + state.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    app = web.Application()
    app.router.add_get("/session/abc/exec", state.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    state.url = f"https://127.0.0.1:{runner.addresses[0][1]}/session/abc"
    yield state
    state.stopped.set()
    await runner.cleanup()


@pytest.fixture
def shells(tmp_path: Path) -> Shells:
    return Shells(ShellFiles(tmp_path / "looking"), SystemClock(), CellSettings(data=tmp_path))


@asynccontextmanager
async def serve(shells: Shells) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(RunnerSessions(shells).watch(stop), name="sessions")
        try:
            yield
        finally:
            stop.set()


def open_shell(shells: Shells, *command: str) -> About:
    return shells.open(JOB, user_id=1, wish=WantedShell(id="", job_id=7, command=command))


async def read_frames(shells: Shells, about: About, *, until: bytes) -> list[tuple[bytes, bytes]]:
    """Read the output from its beginning until it has a frame of this kind."""
    found: list[tuple[bytes, bytes]] = []
    frames, offset = Frames(FROM_COMMAND), 0
    while all(kind != until for kind, _ in found):
        piece = await shells.read(about, OUTPUT, offset)
        offset += len(piece.data)
        found += frames.feed(piece.data)
        assert piece.data or piece.state != "over", found
    return found


async def test_bytes_pass_both_ways_until_the_terminal_ends(shells: Shells, server: SessionServer) -> None:
    session = {"url": server.url, "certificate": server.certificate, "authorization": SECRET}
    shells.store_session(JOB, session)
    about = open_shell(shells)
    async with serve(shells):
        data = size_frame(80, 24) + frame(DATA, b"hello\n") + frame(DATA, b"exit\n")
        await shells.append(about, INPUT, 0, data)
        found = await read_frames(shells, about, until=EXIT)
        assert found == [(OPENED, b""), (DATA, b"HELLO\n"), (DATA, b"EXIT\n"), (EXIT, bytes(4))]
    assert shells.state(about) == ("over", "it has ended")


async def test_a_user_who_closes_the_shell_closes_the_terminal(shells: Shells, server: SessionServer) -> None:
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    async with serve(shells):
        await read_frames(shells, about, until=OPENED)
        shells.close(about, "closed by its user")
    assert shells.state(about) == ("over", "closed by its user")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (423, "another user is connected"),
        (503, "no terminal yet"),
        (404, "the job has ended"),
        (500, "the runner answered 500"),
        (302, "redirects"),
    ],
)
async def test_the_user_learns_why_there_is_no_terminal(
    shells: Shells, server: SessionServer, status: int, reason: str
) -> None:
    server.status = status
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    async with serve(shells):
        [(_, text)] = await read_frames(shells, about, until=REFUSED)
    assert reason in text.decode()


async def test_only_the_certificate_and_the_secret_of_the_runner_are_valid(
    shells: Shells, server: SessionServer
) -> None:
    other, _ = a_certificate()
    for certificate, secret, reason in (
        (server.certificate, "wrong", "does not accept the authorization"),
        (other, SECRET, "cannot be reached"),
        ("no PEM", SECRET, "cannot be reached"),
        ("", SECRET, "cannot be reached"),
    ):
        shells.store_session(JOB, {"url": server.url, "certificate": certificate, "authorization": secret})
        about = open_shell(shells)
        async with serve(shells):
            [(_, text)] = await read_frames(shells, about, until=REFUSED)
        assert reason in text.decode()


async def test_a_command_is_refused(shells: Shells, server: SessionServer) -> None:
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells, "ls")
    async with serve(shells):
        [(_, text)] = await read_frames(shells, about, until=REFUSED)
    assert b"only an interactive terminal" in text


async def test_a_message_that_is_too_large_is_a_failure_with_a_reason(shells: Shells, server: SessionServer) -> None:
    server.first_message = bytes(LARGEST_MESSAGE_BYTES + 1)
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    async with serve(shells):
        [_, (_, text)] = await read_frames(shells, about, until=REFUSED)
    assert b"the connection to the session server of the runner broke" in text
    assert b"exceeds limit" in text


async def test_a_session_server_that_does_not_read_ends_the_shell(
    shells: Shells, server: SessionServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_sessions, "SEND_SECONDS", 0.5)
    server.reads = False
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    async with serve(shells):
        data, offset = frame(DATA, bytes(60_000)), 0
        while (await shells.append(about, INPUT, offset, data)).taken:
            offset += len(data)
        [_, (_, text)] = await read_frames(shells, about, until=REFUSED)
    assert b"did not read" in text


async def test_output_that_the_runner_writes_itself_ends_the_shell(shells: Shells, server: SessionServer) -> None:
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    await shells.append(about, OUTPUT, 0, frame(DATA, b"forged"))
    async with serve(shells):
        await until(lambda: shells.state(about)[0] == "over")
    assert "its runner wrote to it" in shells.state(about)[1]


async def test_output_that_nobody_reads_does_not_block_the_process_when_it_stops(
    shells: Shells, server: SessionServer, tmp_path: Path
) -> None:
    server.first_message = bytes(LARGEST_MESSAGE_BYTES // 2)
    server.repeats = 2 + WINDOW_BYTES // len(server.first_message)
    shells.store_session(JOB, {"url": server.url, "certificate": server.certificate, "authorization": SECRET})
    about = open_shell(shells)
    async with serve(shells):
        output = tmp_path / "looking" / "shells" / about.id / "output"
        await until(lambda: output.stat().st_size > WINDOW_BYTES)
        shells.stop()
    assert shells.state(about)[0] == "over"
