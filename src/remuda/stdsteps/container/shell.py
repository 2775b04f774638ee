"""Runs an interactive command in a container: its stdin, stdout and terminal are those of this program. Usage:
`remuda-step container_shell ENGINE CONTAINER SHARED FILE`, with the arguments of `container_exec`. FILE also has
`terminal`: true if the command gets a terminal, of the size of this program's. Exits with the command's exit code. On
SIGHUP, SIGTERM or SIGINT, or if this program's terminal is closed, it kills all processes of the command and exits."""

import fcntl
import json
import os
import select
import signal
import struct
import termios
import tty
from contextlib import suppress
from typing import Any

from remuda.lib.safe_paths import open_plain
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.termination import Termination
from remuda.stdsteps.container.exec import TRUST_REPOSITORIES, Session, explain_refusal, signal_session, write
from remuda.stdsteps.container.file_access import share
from remuda.stdsteps.engine import docker_exec
from remuda.stdsteps.engine.docker_api import Engine, EngineRefusedError, Stream
from remuda.stdsteps.engine.job_containers import resume

READ_BYTES = 64 * 1024
LOOK_SECONDS = 5.0
HUNG_UP = 128 + signal.SIGHUP
_LEADER = 'printf "%s\\n" "$$"; exec "$@"'


def main(arguments: list[str]) -> int:
    if len(arguments) != 4:
        raise StepError("container_shell needs an engine, a container, a folder and a file")
    host, container, shared, file = arguments
    with open(open_plain(file), "rb") as opened:
        request = json.loads(opened.read())
    if shared:
        share(shared)
    termination = Termination(signal.SIGWINCH)
    engine, terminal = Engine(host), bool(request["terminal"])
    try:
        resume(engine, container)  # the container of a job on hold is paused
        exec_id, stream = docker_exec.begin(
            engine,
            container,
            ["sh", "-c", _LEADER, "sh", *request["command"]],
            work_dir=request["work_dir"],
            env=TRUST_REPOSITORIES | request["env"],
            terminal=terminal,
            takes_input=True,
        )
    except EngineRefusedError as error:
        raise explain_refusal(error, container) from None
    return _Command(engine, container, exec_id, stream, terminal=terminal).follow(termination)


class _Command:
    def __init__(self, engine: Engine, container: str, exec_id: str, stream: Stream, *, terminal: bool) -> None:
        self._engine = engine
        self._container = container
        self._exec_id = exec_id
        self._stream = stream
        self._terminal = terminal
        self._session = Session()
        self._inputs: list[Any] = [0]

    def follow(self, termination: Termination) -> int:
        """Copy input and output until the command exits, and return the exit code. After a signal (except WINCH), or if
        this program's terminal is closed, kills the command and returns HUNG_UP."""
        if self._terminal:
            tty.setraw(0, termios.TCSANOW)
            self._resize()
        if self._stream.has_more:
            self._pass_on()
        while True:
            # A terminal echoes input, so none is sent before the leader has printed its process id as the first line.
            inputs = self._inputs if self._session.id else []
            ready, _, _ = select.select([self._stream, termination, *inputs], [], [], LOOK_SECONDS)
            if termination in ready:
                termination.drain()
                if termination:
                    break
                if self._terminal:
                    self._resize()
            if self._stream in ready and not self._pass_on():
                return self._exit_code()
            if 0 in ready and not self._send_input():
                break
            if not ready and not docker_exec.is_running(self._engine, self._exec_id):
                return self._exit_code()
        while not self._session.id and select.select([self._stream], [], [], LOOK_SECONDS)[0] and self._pass_on():
            pass
        if self._session.id:
            for name in ("HUP", "KILL"):
                signal_session(self._engine, self._container, self._session.id, name)
        return HUNG_UP

    def _resize(self) -> None:
        with suppress(OSError, EngineRefusedError):
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
            docker_exec.resize(self._engine, self._exec_id, columns=columns, rows=rows)

    def _send_input(self) -> bool:
        """Copy available stdin to the command. Returns False if this program's terminal was closed; the end of a stdin
        that is no terminal only ends the command's input."""
        try:
            data = os.read(0, READ_BYTES)
        except OSError:
            data = b""
        if data:
            self._stream.write(data)
            return True
        self._inputs = []
        self._stream.end_input()
        return not self._terminal

    def _pass_on(self) -> bool:
        """Copy available output of the command to stdout and stderr. Returns False at the end of the output."""
        parts = self._stream.read(0.0)
        for kind, data in parts or ():
            # The reader may be gone; a signal reports that.
            with suppress(OSError):
                write(kind, self._session.strip_id(kind, data))
        return parts is not None

    def _exit_code(self) -> int:
        self._session.check_started()
        return docker_exec.exit_code(self._engine, self._exec_id)
