"""Starts one process of a plugin, reads its handshake line and its output, and ends it.

A protocol subclasses `PluginProcess`, calls `launch` in its `start`, and reads the handshake. Invariant: after `close`
neither the process nor its socket folder exists. If the host dies before that, the process ends with it (see the
script `exec_plugin.py`; or because its stdin is closed), and the next start of any plugin removes the folder."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from remuda.lib.socket_folder import SocketFolder
from remuda.lib.tasks import TaskOwner
from remuda.lib.waiting import wait_for_event
from remuda.plugins import exec_plugin
from remuda.plugins.errors import PermanentError, TemporaryError
from remuda.plugins.output import LastWords, Line, Reader, Splitter

START_SECONDS = 60.0
KILLED_SECONDS = 10.0
DYING_SECONDS = 0.5
CHUNK_BYTES = 64 * 1024
LONGEST_LINE_BYTES = 16 * 1024
"""Length limit of the handshake line."""


class PluginProcess:
    """One process of a plugin. The caller must call `close`, also when starting it failed."""

    def __init__(
        self,
        program: str,
        *,
        say: Callable[[Line], None],
        stray: Callable[[str], None] | None = None,
        holds_stdin: bool = False,
        start_seconds: float = START_SECONDS,
        end_seconds: float,
    ) -> None:
        self.program = program
        self._say = say
        self._stray = stray
        """Called with each line on stdout after the handshake, in addition to `say`."""
        self._holds_stdin = holds_stdin
        """The program ends when its stdin does. Otherwise its stdin is empty, and the kernel kills it with the host."""
        self._start_seconds = start_seconds
        self._end_seconds = end_seconds
        self._sockets = SocketFolder()
        self._process: asyncio.subprocess.Process | None = None
        self._stdin: int | None = None
        self._pipes: list[asyncio.ReadTransport] = []
        self._tasks = TaskOwner()
        self._readers: list[asyncio.Task[None]] = []
        self._last = LastWords()
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    @property
    def sockets(self) -> str:
        """Path of the folder for the plugin's socket, which only this user can open."""
        return self._sockets.path

    async def launch(self, env: Mapping[str, str]) -> str:
        """Start the program and return its first line on stdout. Raises TemporaryError if it does not start or prints
        no line, PermanentError if the line is longer than `LONGEST_LINE_BYTES`."""
        stdout, stderr = await self._spawn(env)
        self._tasks.start(self._watch(), name=f"end of {self.program}")
        self._readers.append(self._tasks.start(self._drain(stderr), name=f"stderr of {self.program}"))
        try:
            async with asyncio.timeout(self._start_seconds):
                line = await stdout.readuntil(b"\n")
        except TimeoutError:
            raise TemporaryError(self.describe(f"printed no handshake within {self._start_seconds:.0f} s")) from None
        except asyncio.LimitOverrunError:
            longest = f"more than {LONGEST_LINE_BYTES} bytes"
            raise PermanentError(f"{self.program} printed a first line of {longest}; it is not a plugin") from None
        except asyncio.IncompleteReadError as error:
            await wait_for_event(self.ended, within_seconds=self._end_seconds)
            await self.read_last_words()
            printed = f" and after printing {error.partial[:200]!r}" if error.partial else ""
            ended = f"ended with {self.exit_code}" if self.exit_code is not None else "closed its stdout"
            raise TemporaryError(self.describe(f"{ended} before its handshake{printed}")) from None
        self._readers.append(self._tasks.start(self._drain(stdout, self._stray), name=f"stdout of {self.program}"))
        return line.decode(errors="replace")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process and its children, except children in sessions of their own."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def close(self) -> bool:
        """End the process: close its stdin, wait, SIGTERM, wait, SIGKILL. True if it ended without a signal, or was
        never started."""
        by_itself = True
        self._close_stdin()
        if self._process is not None:
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    by_itself = False
                    self.kill(number)
                seconds = KILLED_SECONDS if number is signal.SIGKILL else self._end_seconds
                if await wait_for_event(self.ended, within_seconds=seconds):
                    break
        await self._tasks.close()
        for pipe in self._pipes:
            pipe.close()
        self._sockets.close()
        return by_itself

    def describe(self, what: str) -> str:
        """An error text: the program, `what` happened to it, and the last lines that it wrote."""
        output = f"; its last output: {' / '.join(self._last.lines)}" if self._last.lines else ""
        return f"{self.program} {what}{output}"

    async def has_ended(self) -> bool:
        """True if the process has ended or ends within `DYING_SECONDS`: calls to a dying process may fail before its
        end is noticed."""
        if await wait_for_event(self.ended, within_seconds=DYING_SECONDS):
            await self.read_last_words()
        return self.ended.is_set()

    async def read_last_words(self) -> None:
        """Wait for the rest of the ended process's output, at most half a second: children may keep the pipes open."""
        if self._readers:
            await asyncio.wait(self._readers, timeout=0.5)

    async def _spawn(self, env: Mapping[str, str]) -> tuple[asyncio.StreamReader, asyncio.StreamReader]:
        """Start the process and return its stdout and stderr. Creates the pipes itself, because with pipes of asyncio
        `wait()` does not return while a child of the process keeps one open."""
        stdout, their_stdout = await self._pipe()
        stderr, their_stderr = await self._pipe()
        theirs = [their_stdout, their_stderr]
        if self._holds_stdin:
            stdin, self._stdin = os.pipe()
            theirs.append(stdin)
            command = [self.program]
        else:
            stdin = asyncio.subprocess.DEVNULL
            command = [sys.executable, "-I", "-S", exec_plugin.__file__, str(os.getpid()), self.program]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=stdin, stdout=their_stdout, stderr=their_stderr, env=env, start_new_session=True
            )
        except OSError as error:
            raise TemporaryError(
                f"{self.program} cannot be started: {exec_plugin.explain_start_error(self.program, error)}"
            ) from error
        finally:
            for end in theirs:
                os.close(end)
        return stdout, stderr

    async def _pipe(self) -> tuple[asyncio.StreamReader, int]:
        ours, theirs = os.pipe()
        reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
        )
        self._pipes.append(transport)
        return reader, theirs

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def _drain(self, pipe: asyncio.StreamReader, also: Callable[[str], None] | None = None) -> None:
        splitter, reader = Splitter(), Reader()
        while True:
            data = await pipe.read(CHUNK_BYTES)
            for text in splitter.feed(data):
                line = reader.read(text)
                self._last.add(line)
                self._say(line)
                if also is not None:
                    also(text)
            if not data:
                return

    async def _watch(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self.ended.set()
