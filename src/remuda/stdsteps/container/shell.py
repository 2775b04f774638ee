"""Runs one command in a container for a person: its input and output are this program's, and so is its terminal.

`remuda-step container_shell ENGINE CONTAINER SHARED FILE`, as `container_exec` but for `terminal` in FILE: whether the
command has a terminal, as large as the one that this program was started on. It ends with the command, whose exit code
it has, or when nobody is there any more (SIGHUP, SIGTERM): then everything that the command started there goes, too.
"""

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
from remuda.stdsteps.container.exec import NO_QUESTION, refusal, signal_session, write
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
    signals = _Signals()
    engine, terminal = Engine(host), bool(request["terminal"])
    try:
        resume(engine, container)  # that of a job on hold is paused
        number, stream = docker_exec.begin(
            engine,
            container,
            ["sh", "-c", _LEADER, "sh", *request["command"]],
            work_dir=request["work_dir"],
            env=NO_QUESTION | request["env"],
            terminal=terminal,
            takes_input=True,
        )
    except EngineRefusedError as error:
        raise refusal(error, container) from None
    return _Look(engine, container, number, stream, terminal=terminal).follow(signals)


class _Signals:
    """What signals have come; can be waited for."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGWINCH):
            signal.signal(one, _note)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._reader

    def take(self) -> bytes:
        """The numbers of those that have come since the last time."""
        try:
            return os.read(self._reader, 512)
        except BlockingIOError:
            return b""


def _note(_number: int, _frame: object) -> None:
    """Its number, which wakes whoever waits, is all that is needed."""


class _Look:
    """A command that runs in the container."""

    def __init__(self, engine: Engine, container: str, number: str, stream: Stream, *, terminal: bool) -> None:
        self._engine = engine
        self._container = container
        self._number = number
        self._stream = stream
        self._terminal = terminal
        self._session = ""
        self._unread = b""
        self._inputs: list[Any] = [0]

    def follow(self, signals: _Signals) -> int:
        """Carry bytes both ways until it ends, or is not wanted any more."""
        if self._terminal:
            tty.setraw(0, termios.TCSANOW)
            self._fit()
        if self._stream.has_more:
            self._pass_on()
        while True:
            # A terminal prints what is typed: not before the leader has told its number, which is to be the first line.
            inputs = self._inputs if self._session else []
            ready, _, _ = select.select([self._stream, signals, *inputs], [], [], LOOK_SECONDS)
            if signals in ready and not self._hear(signals.take()):
                break
            if self._stream in ready and not self._pass_on():
                return self._code()
            if 0 in ready and not self._feed():
                break
            if not ready and not docker_exec.is_running(self._engine, self._number):
                return self._code()
        while not self._session and select.select([self._stream], [], [], LOOK_SECONDS)[0] and self._pass_on():
            pass
        if self._session:
            for name in ("HUP", "KILL"):
                signal_session(self._engine, self._container, self._session, name)
        return HUNG_UP

    def _hear(self, numbers: bytes) -> bool:
        if set(numbers) - {signal.SIGWINCH}:
            return False
        if self._terminal:
            self._fit()
        return True

    def _fit(self) -> None:
        """The terminal there is as large as the one here."""
        with suppress(OSError, EngineRefusedError):
            rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
            docker_exec.resize(self._engine, self._number, columns=columns, rows=rows)

    def _feed(self) -> bool:
        """What has come on stdin; False when whoever sat there has gone."""
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
        """What it printed; False at its end."""
        parts = self._stream.read(0.0)
        for kind, data in parts or ():
            rest = data
            if not self._session and kind == 1:
                self._unread += data
                first, line, rest = self._unread.partition(b"\n")
                if not line:
                    continue
                self._session, self._unread = first.strip().decode(errors="replace"), b""
            # Whoever reads may have gone; a signal tells that.
            with suppress(OSError):
                write(kind, rest)
        return parts is not None

    def _code(self) -> int:
        if not self._session:
            text = self._unread.decode(errors="replace").strip()
            raise StepError(f"the command could not be started in the container: {text}")
        return docker_exec.exit_code(self._engine, self._number)
