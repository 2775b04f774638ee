"""How clients reach the agent (unix socket or TCP port), and which processes may call it.

A unix socket can be used only by this user and root: file mode and peer credentials are checked. A TCP port of the
loopback address is open to every user: there each call carries a token, from a file that only this user can read. The
processes of a job may not call the agent that runs them, or one job could read and cancel another. Where jobs run as
the agent's own user, this only prevents mistakes: a hostile job can get around it, see docs/reference/agent.md."""

import asyncio
import hmac
import ipaddress
import os
import secrets
import socket as sockets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.events import RecvRequest, listen
from grpclib.server import Server

from remuda.lib.dataclass import dataclass
from remuda.steps.errors import AgentError
from remuda.steps.job_files.data_folder import TOKEN_KEY, announce, announce_endpoint, socket_path

_LOOPBACK = "127.0.0.1"
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    kind: str
    """unix or tcp."""
    listener: sockets.socket
    address: str
    """The address in the ready message."""
    token: str = ""
    """The token that every call must carry; empty if the kernel identifies the caller."""

    def announce(self, data: Path) -> None:
        if self.kind == "unix":
            announce(data, Path(self.address))
        else:
            host, port = self.listener.getsockname()
            announce_endpoint(data, host=host, port=port, token=self.token)

    def guard(self, server: Server, is_of_a_job: Callable[[int], bool]) -> None:
        """Make the server refuse calls over TCP without the token. Over a unix socket it refuses calls by other users
        (except root), and by processes for whose process id `is_of_a_job` returns True."""
        # The peer of a connection does not change, and an older process never becomes part of a newer job.
        checked: WeakSet[asyncio.Transport] = WeakSet()

        async def check(event: RecvRequest) -> None:
            if self.kind == "unix":
                # The library has no public way from a call to its socket.
                connection = event.peer._transport
                if connection not in checked:
                    _check_caller(connection.get_extra_info("socket"), is_of_a_job)
                    checked.add(connection)
            elif not hmac.compare_digest(self.token.encode(), str(event.metadata.get(TOKEN_KEY, "")).encode()):
                raise GRPCError(
                    Status.UNAUTHENTICATED, "the call has no valid token; the file `endpoint` in the data folder has it"
                )

        listen(server, RecvRequest, check)


@contextmanager
def open_transport(data: Path, *, listen_at: str | None, socket: Path | None) -> Iterator[Transport]:
    """Listen at `unix` (the default), `tcp` or `tcp:HOST:PORT`. Raises AgentError if that is not possible. `socket`:
    path of the unix socket, by default in the data folder; if it is too long, one in a temporary folder is used."""
    kind, _, place = (listen_at or "unix").partition(":")
    (data / "endpoint").unlink(missing_ok=True)
    if kind == "unix" and not place:
        with socket_path(data, socket) as path, _unix(path) as listener:
            yield Transport(kind="unix", listener=listener, address=str(path))
    elif kind == "tcp" and socket is None:
        host, port = _tcp_place(place)
        with _tcp(host, port) as listener:
            address = "tcp:{}:{}".format(*listener.getsockname())
            try:
                yield Transport(kind="tcp", listener=listener, address=address, token=secrets.token_urlsafe(32))
            finally:
                (data / "endpoint").unlink(missing_ok=True)
    else:
        raise AgentError(
            f"--listen: unix, tcp or tcp:HOST:PORT is needed (and --socket only with unix), not {listen_at}"
        )


@contextmanager
def _unix(path: Path) -> Iterator[sockets.socket]:
    """Yield a unix socket for this user only, bound but not listening yet. Replaces a socket that a killed agent left.
    Call this before any job runs, because it changes the umask of the whole process for a moment."""
    if path.exists() and not path.is_socket():
        raise AgentError(f"cannot listen on {path}: something else than a socket is there; give another --socket")
    path.unlink(missing_ok=True)
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as listener:
        old_mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise AgentError(f"cannot listen on {path}: {error.strerror}") from None
        finally:
            os.umask(old_mask)
        yield listener


def _tcp_place(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    try:
        is_loopback = ipaddress.IPv4Address(host or _LOOPBACK).is_loopback
        number = int(port or 0)
    except ValueError:
        raise AgentError(
            f"--listen tcp:{place}: an IPv4 address and a port are needed, as tcp:127.0.0.1:7000"
        ) from None
    if not is_loopback:
        raise AgentError(f"--listen tcp:{place}: only the loopback address is allowed; others reach it through `proxy`")
    return host or _LOOPBACK, number


@contextmanager
def _tcp(host: str, port: int) -> Iterator[sockets.socket]:
    with sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM) as listener:
        listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise AgentError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        yield listener


def _check_caller(connection: sockets.socket, is_of_a_job: Callable[[int], bool]) -> None:
    data = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    if uid not in (os.getuid(), 0):
        raise GRPCError(Status.PERMISSION_DENIED, "this agent answers its own user only")
    # pid 0 is a process of an outer namespace, where no job of this agent is. A process that has ended may have been
    # a job's, and may have passed the connection on.
    if pid and _has_ended(pid):
        raise GRPCError(Status.PERMISSION_DENIED, "the process that made this connection has ended; connect again")
    if is_of_a_job(pid):
        raise GRPCError(Status.PERMISSION_DENIED, "a job may not call the agent that runs it")


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # the process is there and belongs to another user
    return False
