"""One process of a plugin: starts it, reads its handshake, passes its output on, and ends it.

It is started in a session of its own, with nothing of go-plugin's that we may have been told ourselves, and it ends
with us (`launch`). Its pipes are read until it has ended, whatever it writes. `host` keeps a plugin running, out of
processes like this. Invariant: after `close` neither the process nor its socket is there; if there is nobody to call
it, the process ends with us, and the socket goes with the next start of any plugin.
"""

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress

from grpclib.client import Channel
from grpclib.config import Configuration

from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.handshake import LONGEST_LINE_BYTES, Handshake, environment, read_handshake
from remuda.fleeting.status_details import Details
from remuda.lib.socket_folder import SocketFolder
from remuda.plugins import launch
from remuda.plugins.output import LastWords, Line, Reader, Splitter
from remuda.wire.http2 import LiveChannel

START_SECONDS = 60.0
END_SECONDS = 2.0
KILLED_SECONDS = 10.0
DYING_SECONDS = 0.5
CHUNK_BYTES = 64 * 1024


class PluginProcess:
    """A plugin that was started."""

    def __init__(
        self,
        program: str,
        *,
        say: Callable[[Line], None],
        stray: Callable[[str], None] | None = None,
        auto_mtls: bool = False,
        start_seconds: float = START_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        self.program = program
        self._say = say
        self._stray = stray
        """Told what comes on stdout after the handshake, besides."""
        self._wants_tls = auto_mtls
        self._start_seconds = start_seconds
        self._end_seconds = end_seconds
        self._sockets = SocketFolder()
        self._process: asyncio.subprocess.Process | None = None
        self._pipes: list[asyncio.ReadTransport] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._last = LastWords()
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """With which it ended."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> Channel:
        """A channel to it, once it has said its line. TemporaryError, PermanentError."""
        identity = None
        if self._wants_tls:
            from remuda.plugins.certificates import new_identity

            identity = await asyncio.to_thread(new_identity)
        shown = identity.certificate.decode() if identity is not None else ""
        line = await self._first_line(environment(os.environ, sockets=self._sockets.path, certificate=shown))
        try:
            handshake = read_handshake(line, asked_for_certificate=self._wants_tls)
        except PermanentError as error:
            raise PermanentError(f"{self.program}: {error}") from error
        if identity is None:
            return _channel(handshake)
        from remuda.plugins.certificates import client_context

        return _channel(handshake, client_context(identity, handshake.certificate))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal to it and to all that it started; what is to outlive it has a session of its own."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def close(self) -> bool:
        """Have it end: wait, SIGTERM, SIGKILL. Whether it ended without a signal."""
        by_itself = True
        if self._process is not None:
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    by_itself = False
                    self.kill(number)
                with suppress(TimeoutError):
                    # Nothing outlives SIGKILL but for a moment.
                    async with asyncio.timeout(self._end_seconds if number is not signal.SIGKILL else KILLED_SECONDS):
                        await self.ended.wait()
                    break
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pipe in self._pipes:
            pipe.close()
        self._sockets.close()
        return by_itself

    def with_words(self, what: str) -> str:
        """A sentence about it, with what it wrote last."""
        words = f"; its last words: {' / '.join(self._last.lines)}" if self._last.lines else ""
        return f"{self.program} {what}{words}"

    async def has_ended(self) -> bool:
        """Now, or in a moment: a call fails before it is known that the process has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DYING_SECONDS):
                await self.ended.wait()
        if self.ended.is_set():
            await self.last_words()
        return self.ended.is_set()

    async def last_words(self) -> None:
        """Wait for what a process that has ended wrote before; not for its children, who may hold the pipes."""
        readers = self._tasks[1:]
        if readers:
            await asyncio.wait(readers, timeout=0.5)

    async def _first_line(self, env: dict[str, str]) -> str:
        stdout, their_stdout = await self._pipe()
        stderr, their_stderr = await self._pipe()
        try:
            # Not by pipes of the library's own: with them a process has not ended while a child of it holds one.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), self.program),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=their_stdout,
                stderr=their_stderr,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise TemporaryError(f"{self.program} cannot be started: {launch.cause(self.program, error)}") from error
        finally:
            os.close(their_stdout)
            os.close(their_stderr)
        self._tasks.append(asyncio.create_task(self._watch(), name=f"end of {self.program}"))
        self._tasks.append(asyncio.create_task(self._drain(stderr), name=f"stderr of {self.program}"))
        try:
            async with asyncio.timeout(self._start_seconds):
                line = await stdout.readuntil(b"\n")
        except TimeoutError:
            raise TemporaryError(self.with_words(f"said no handshake within {self._start_seconds:.0f} s")) from None
        except asyncio.LimitOverrunError:
            longest = f"more than {LONGEST_LINE_BYTES} bytes"
            raise PermanentError(f"{self.program} printed a first line of {longest}; it is no plugin") from None
        except asyncio.IncompleteReadError as error:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._end_seconds):
                    await self.ended.wait()
            await self.last_words()
            said = f" and after printing {error.partial[:200]!r}" if error.partial else ""
            ended = f"ended with {self.code}" if self.code is not None else "closed its stdout"
            raise TemporaryError(self.with_words(f"{ended} before its handshake{said}")) from None
        self._tasks.append(asyncio.create_task(self._drain(stdout, self._stray), name=f"stdout of {self.program}"))
        return line.decode(errors="replace")

    async def _pipe(self) -> tuple[asyncio.StreamReader, int]:
        ours, theirs = os.pipe()
        reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
        )
        self._pipes.append(transport)
        return reader, theirs

    async def _drain(self, pipe: asyncio.StreamReader, also: Callable[[str], None] | None = None) -> None:
        splitter, reader = Splitter(), Reader()
        while True:
            data = await pipe.read(CHUNK_BYTES)
            for text in splitter.feed(data):
                line = reader.read(text)
                self._last.hear(text, line)
                self._say(line)
                if also is not None:
                    also(text)
            if not data:
                return

    async def _watch(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self.ended.set()


def _channel(handshake: Handshake, context: ssl.SSLContext | None = None) -> Channel:
    # Certificates name localhost, wherever the socket is.
    config = Configuration(ssl_target_name_override="localhost") if context is not None else Configuration()
    if handshake.network == "unix":
        return LiveChannel(path=handshake.address, ssl=context, config=config, status_details_codec=Details())
    host, _, port = handshake.address.rpartition(":")
    return LiveChannel(host.strip("[]"), int(port), ssl=context, config=config, status_details_codec=Details())
