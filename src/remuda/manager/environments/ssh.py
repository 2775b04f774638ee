"""An SSH connection to one machine, for commands and for gRPC channels to the agent there. In the manager only this
module imports asyncssh.

The connection is opened on first use, and again on the next use after it broke. An unknown host key is refused unless
`checks_host_key` is false (disabled by the operator, or first login to an autoscaled machine). `~/.ssh/config` and SSH
agents are ignored. Failures raise SshError with a message for people, or SshLastingError if a retry does not help."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Any

import asyncssh
from grpclib.protocol import H2Protocol

from remuda.lib.connection_errors import Fault, explain
from remuda.lib.dataclass import dataclass
from remuda.wire.agent_client import CHANNEL_CONFIG
from remuda.wire.http2 import LiveChannel

CONNECT_SECONDS = 15.0
LOGIN_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 10.0
KEEP_ALIVE_COUNT = 3
"""Number of unanswered keepalive messages after which the connection is closed."""
COMMAND_SECONDS = 120.0
COMMANDS_AT_ONCE = 4
"""An sshd allows ten sessions on a connection by default; the agent needs one."""
_STDERR_BYTES = 2000
_ADVICE = {Fault.REFUSED: "check host and port of the machine, and whether its sshd runs"}


class SshError(Exception):
    """The machine is unreachable, or a command failed; the message says why."""


class SshLastingError(SshError):
    """A retry does not help: the login is denied, the host key is wrong, or something is missing on the machine."""


class SshTimeoutError(SshError):
    """A command on the machine took longer than its time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int = 22
    user: str = "root"
    identity_file: str = ""
    key: bytes = field(default=b"", repr=False)
    """A private key, instead of `identity_file`."""
    password: str = field(default="", repr=False)
    known_hosts_file: str = ""
    host_key: str = ""
    """The machine's public key; if set, no other is trusted."""
    checks_host_key: bool = True
    keep_alive_seconds: float = KEEP_ALIVE_SECONDS

    @property
    def has_key(self) -> bool:
        return bool(self.key or self.identity_file)

    @property
    def keys_file(self) -> Path:
        return Path(self.known_hosts_file or "~/.ssh/known_hosts").expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    code: int
    out: bytes
    err: str


class SshConnection:
    """One SSH connection to a machine, opened on first use and again after it broke."""

    def __init__(self, address: Address, *, commands_at_once: int = COMMANDS_AT_ONCE) -> None:
        self.address = address
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._failure: SshError | None = None  # of the last attempt to connect that failed
        self._commands = asyncio.Semaphore(commands_at_once)

    @property
    def is_up(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Return the open connection, or open one. Concurrent callers share one attempt and its SshError."""
        before = self._failure
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                if self._failure is not None and self._failure is not before:
                    raise type(self._failure)(str(self._failure))
                try:
                    self._connection = await self._connect()
                except SshError as error:
                    self._failure = type(error)(str(error))  # without the traceback, which refers to the caller's data
                    raise
            return self._connection

    @property
    def host_key(self) -> str:
        """The machine's host key in OpenSSH format (one line); empty before the first connection."""
        key = None if self._connection is None else self._connection.get_server_host_key()
        return "" if key is None else key.export_public_key("openssh").decode().strip()

    async def sessions(self, most: int) -> int:
        """Open up to `most` sessions at the same time, close them, and return how many the machine's sshd allowed."""
        connection = await self.connect()
        opened: list[asyncssh.SSHClientProcess[bytes]] = []
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                while len(opened) < most:
                    opened.append(await connection.create_process("cat", encoding=None))
        except asyncssh.ChannelOpenError:
            pass
        except TimeoutError:
            raise SshTimeoutError(f"{self.address.host} did not open {most} sessions in time") from None
        except (OSError, asyncssh.Error) as error:
            raise self._lost_error(error) from error
        finally:
            for process in opened:
                process.close()
        for process in opened:
            await process.wait_closed()
        return len(opened)

    async def run(self, line: str, data: bytes = b"", *, seconds: float = COMMAND_SECONDS) -> CommandResult:
        """Run a command line in the login shell, with `data` as its stdin. Raises SshTimeoutError if it takes longer
        than `seconds`; the command may continue on the machine."""
        async with self._commands:
            connection = await self.connect()
            try:
                async with asyncio.timeout(seconds), connection.create_process(line, encoding=None) as process:
                    out, err = await process.communicate(data)
                    await process.wait_closed()
                    code = process.returncode
            except TimeoutError:
                raise SshTimeoutError(f"a command took more than {seconds:.0f} s on {self.address.host}") from None
            except (OSError, asyncssh.Error) as error:
                raise self._lost_error(error) from error
        if code is None:
            raise SshError(f"the connection to {self.address.host} was lost while a command ran there")
        return CommandResult(code=code, out=_bytes(out), err=_bytes(err).decode(errors="replace"))

    async def channel(self, line: str) -> "StreamChannel":
        """Return a gRPC channel over stdin and stdout of a command on the machine, which its first call starts."""
        connection = await self.connect()
        return StreamChannel(lambda factory: connection.create_session(factory, line, encoding=None), self._lost_error)

    async def socket_channel(self, path: str) -> "StreamChannel":
        """Return a gRPC channel to the UNIX socket `path` on the machine. Its first call fails if nothing listens
        there, or if sshd does not allow forwarding to UNIX sockets."""
        connection = await self.connect()
        return StreamChannel(lambda factory: connection.create_unix_connection(factory, path), self._lost_error)

    def abort(self) -> None:
        """Close at once, because the machine no longer exists; calls fail now and not after a timeout."""
        if self._connection is not None:
            self._connection.abort()

    async def close(self) -> None:
        """Close the connection. Processes on the machine that do not depend on it, such as the agent, continue."""
        if self._connection is not None:
            self._connection.abort()
            await self._connection.wait_closed()
            self._connection = None

    async def _connect(self) -> asyncssh.SSHClientConnection:
        address = self.address
        try:
            return await asyncssh.connect(
                address.host,
                address.port,
                username=address.user,
                config=None,
                agent_path=None,
                client_keys=_client_keys(address),
                password=address.password or None,
                known_hosts=_trusted_keys(address),
                x509_trusted_certs=None,
                connect_timeout=CONNECT_SECONDS,
                login_timeout=LOGIN_SECONDS,
                keepalive_interval=address.keep_alive_seconds,
                keepalive_count_max=KEEP_ALIVE_COUNT,
            )
        except (OSError, asyncssh.Error, asyncssh.KeyImportError) as error:
            raise self._connect_error(error) from error

    def _connect_error(self, error: Exception) -> SshError:
        address = self.address
        name = f"{address.user}@{address.host}:{address.port}"
        match error:
            case asyncssh.HostKeyNotVerifiable() if address.host_key:
                text = f"{name} has another host key than its host_key says; find out why before you change that"
            case asyncssh.HostKeyNotVerifiable():
                text = (
                    f"the host key of {name} is not in {address.keys_file}, or is another one there; see what "
                    f"`ssh-keyscan -p {address.port} {address.host}` prints, and add it if it is the machine's"
                )
            case asyncssh.PermissionDenied():
                by = f"the key {address.identity_file}".strip() if address.has_key else "the password"
                text = f"{name} does not accept {by}"
            case asyncssh.KeyImportError():
                text = f"the key {address.identity_file}".strip() + f" cannot be used: {error}"
            case FileNotFoundError() | PermissionError():
                text = f"{error.filename} cannot be read: {error.strerror}"
            case _:
                reason = explain(error, f"ssh://{address.host}:{address.port}", advice=_ADVICE)
                text = f"{name} cannot be reached: {_text(error) if reason.fault is Fault.OTHER else reason}"
        is_denied = isinstance(
            error, asyncssh.HostKeyNotVerifiable | asyncssh.PermissionDenied | asyncssh.KeyImportError
        )
        return SshLastingError(text) if is_denied else SshError(text)

    def _lost_error(self, error: Exception) -> SshError:
        return SshError(f"the connection to {self.address.host} is lost: {_text(error)}")


class StreamChannel(LiveChannel):
    """A gRPC channel over one SSH channel, which `opens` opens; `lost_error` converts errors of `opens` to SshError."""

    def __init__(self, opens: Callable[[Any], Awaitable[object]], lost_error: Callable[[Exception], SshError]) -> None:
        super().__init__(path="ssh", config=CHANNEL_CONFIG)
        self._opens = opens
        self._lost_error = lost_error
        self._session: _Session | None = None

    async def _create_connection(self) -> H2Protocol:
        session = _Session(self._protocol_factory())
        try:
            await self._opens(lambda: session)
        except (OSError, asyncssh.Error) as error:
            raise ConnectionError(str(self._lost_error(error))) from error
        self._session = session
        return session.protocol

    @property
    def error_output(self) -> str:
        """Exit code and the end of stderr of the channel's command, in one line; empty if there is neither."""
        return "" if self._session is None else self._session.error_output


class _Transport(asyncio.Transport):
    """Writes the data of the HTTP/2 protocol to an SSH channel; data for a closed channel is dropped."""

    def __init__(self, channel: "asyncssh.SSHClientChannel[bytes]") -> None:
        super().__init__()
        self._channel = channel

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._channel.is_closing()

    def write(self, data: Any) -> None:
        if not self._channel.is_closing():
            self._channel.write(bytes(data))

    def close(self) -> None:
        self._channel.close()


class _Session(asyncssh.SSHClientSession[bytes]):
    """Passes data of one SSH channel to the HTTP/2 protocol, and keeps the last bytes of stderr for error messages."""

    def __init__(self, protocol: H2Protocol) -> None:
        self.protocol = protocol
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._is_started = False
        self._stderr = b""

    @property
    def error_output(self) -> str:
        is_command = isinstance(self._channel, asyncssh.SSHClientChannel)
        code = self._channel.get_returncode() if self._channel is not None and is_command else None
        text = self._stderr.decode(errors="replace").strip()
        return " ".join(filter(None, ("" if code is None else f"exit code {code}", text)))

    def connection_made(self, chan: "asyncssh.SSHClientChannel[bytes]") -> None:
        self._channel = chan

    def session_started(self) -> None:
        assert self._channel is not None
        self._is_started = True
        self.protocol.connection_made(_Transport(self._channel))

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype is None:
            self.protocol.data_received(data)
        else:
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_started:
            self.protocol.connection_lost(exc)


def _client_keys(address: Address) -> Any:
    if address.key:
        return [asyncssh.import_private_key(address.key)]
    return [str(Path(address.identity_file).expanduser())] if address.identity_file else None


def _trusted_keys(address: Address) -> Any:
    """Return the accepted host keys; None: any key. Raises SshLastingError if the configured key is invalid."""
    if not address.checks_host_key:
        return None
    if address.host_key:
        try:
            return [asyncssh.import_public_key(address.host_key)], [], []
        except asyncssh.KeyImportError as error:
            text = f"host_key cannot be read: {error}; give one line such as ssh-ed25519 AAAA..."
            raise SshLastingError(text) from None
    # A missing file trusts no key, so that the connection is refused.
    return str(address.keys_file) if address.keys_file.is_file() else b""


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else b""


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
