"""`remuda-agent proxy`: connects stdin and stdout to the unix socket or TCP port of the agent on this machine.

A manager runs it through ssh or a container engine's exec. Messages go to stderr. With `--start` it starts an agent
first if none answers; that agent keeps running when the proxy ends."""

import os
import signal
import socket as sockets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from remuda.lib.clock import SystemClock
from remuda.lib.files import write_all
from remuda.steps.errors import EXIT_IN_USE, AgentError
from remuda.steps.job_files.data_folder import endpoint_in, socket_in
from remuda.steps.pack.program import own_command

START_SECONDS = 30.0
"""How long a started agent may take to answer."""
LAST_SECONDS = 5.0
"""How long the agent may take to close a connection whose client has gone."""
_LOOK_SECONDS = 0.05
_CHUNK_BYTES = 64 * 1024


def proxy(data: Path, *, socket: Path | None, start: Sequence[str] | None) -> None:
    """Copy bytes between stdin, stdout and the agent until either side closes. `data`: the agent's data folder.
    `socket`: path of its socket, if not in that folder. `start`: if no agent answers, start one with these options of
    `serve`; None: raise AgentError instead."""
    try:
        connection = _connect(data, socket)
    except OSError as error:
        if start is None:
            place = socket or socket_in(data) or data
            raise AgentError(
                f"no agent answers at {place} ({error.strerror or error}); start one with `serve`, or give --start"
            ) from None
        connection = _start_agent(data, socket, start)
    with connection:
        threading.Thread(target=_send, args=(connection,), name="stdin", daemon=True).start()
        with suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            while data_in := connection.recv(_CHUNK_BYTES):
                write_all(1, data_in)


def _connect(data: Path, socket: Path | None) -> sockets.socket:
    if socket is None and (endpoint := endpoint_in(data)) is not None:
        return sockets.create_connection((endpoint["host"], endpoint["port"]))
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    try:
        connection.connect(str(socket or socket_in(data) or data / "agent.sock"))
    except OSError:
        connection.close()
        raise
    return connection


def _start_agent(data: Path, socket: Path | None, options: Sequence[str]) -> sockets.socket:
    """Start an agent that continues after the end of this process, and connect to it. If another proxy has started one
    at the same time, connect to that. Raises AgentError if none answers in time."""
    where = ["--socket", str(socket)] if socket else []
    command = own_command("serve", "--data", str(data), *where, *options)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    errors = data / f"agent.start-{os.getpid()}"
    pid: int | None = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            # Not this process's stderr: a caller that waits for its end would wait for the agent's.
            (os.POSIX_SPAWN_OPEN, 2, str(errors), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ],
        setsid=True,
        setsigdef=[signal.SIGPIPE],
    )
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    try:
        while clock.monotonic() < deadline:
            with suppress(OSError):
                return _connect(data, socket)
            if pid is not None and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                pid = None
                if os.waitstatus_to_exitcode(ended[1]) != EXIT_IN_USE:
                    raise AgentError(f"the agent did not start: {errors.read_text().strip()}")
            time.sleep(_LOOK_SECONDS)
        raise AgentError(f"the agent that was started does not answer: {errors.read_text().strip()}")
    finally:
        errors.unlink(missing_ok=True)


def _send(connection: sockets.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _CHUNK_BYTES):
            connection.sendall(data)
    with suppress(OSError):
        connection.settimeout(LAST_SECONDS)
        connection.shutdown(sockets.SHUT_WR)
