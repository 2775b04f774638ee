"""Starts a plugin, reads its handshake, and ends it.

Where a plugin is found: a path, or a name for `remuda-environment-NAME` on PATH. What it writes to stderr goes to
whoever asked, line by line. It ends when its stdin is closed, so it ends with us whatever happens to us; one that does
not is told to, and then killed. `adapters/plugin.py` in the manager keeps one running; `conformance` tries it out.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from grpclib.client import Channel

from remuda.environments.errors import PluginError
from remuda.environments.handshake import (
    COOKIE,
    LONGEST_LINE_BYTES,
    SOCKETS,
    VERSIONS,
    Handshake,
    common_version,
    in_words,
    read_handshake,
)
from remuda.lib.socket_folder import SocketFolder
from remuda.wire.agent_client import CHANNEL_CONFIG
from remuda.wire.http2 import LiveChannel

PREFIX = "remuda-environment-"
START_SECONDS = 60.0
END_SECONDS = 5.0
_LAST_LINES = 5


def find_plugin(name: str) -> str:
    """The program of a name or path. PluginError."""
    if "/" in name:
        if not os.access(name, os.X_OK) or Path(name).is_dir():
            raise PluginError(f"{name}: there is no such program, or it may not be executed")
        return str(Path(name).absolute())
    found = shutil.which(f"{PREFIX}{name}")
    if found is None:
        raise PluginError(
            f"there is no plugin {name}: no program {PREFIX}{name} in PATH; install it, or give the path of its program"
        )
    return found


class PluginProcess:
    """A plugin that was started."""

    def __init__(self, program: str, *, versions: Collection[int] = VERSIONS, say: Callable[[str], None]) -> None:
        self.program = program
        self._versions = versions
        self._say = say
        self._sockets = SocketFolder()
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._last: list[str] = []
        self.handshake: Handshake | None = None
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> int:
        """The protocol version that both speak, once it has said its line. PluginError."""
        env = {name: value for name, value in os.environ.items() if name not in (COOKIE, SOCKETS)}
        env |= {COOKIE: in_words(self._versions, ","), SOCKETS: self._sockets.path}
        try:
            self._process = await asyncio.create_subprocess_exec(
                self.program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
                start_new_session=True,
                limit=LONGEST_LINE_BYTES,
            )
        except OSError as error:
            raise PluginError(f"{self.program} cannot be started: {error.strerror}") from error
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        self._readers.append(asyncio.create_task(self._log(stderr), name=f"stderr of {self.program}"))
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await stdout.readline()
        except TimeoutError:
            raise PluginError(self._with_words(f"said no handshake within {START_SECONDS:.0f} s")) from None
        except ValueError:
            raise PluginError(f"{self.program} printed a first line of more than {LONGEST_LINE_BYTES} bytes") from None
        if not line.endswith(b"\n"):
            await self._process.wait()
            # Its last words may still be on the way.
            await asyncio.wait(self._readers, timeout=1.0)
            raise PluginError(self._with_words(f"ended with {self._process.returncode} before its handshake"))
        self.handshake = read_handshake(line.decode(errors="replace"))
        version = common_version(self.handshake.versions, self._versions)
        self._readers.append(asyncio.create_task(self._log(stdout), name=f"stdout of {self.program}"))
        self._readers.append(asyncio.create_task(self._watch(), name=f"end of {self.program}"))
        return version

    def channel(self) -> Channel:
        """A new connection; a call that may take long has one of its own, for one carries no more than 100 calls."""
        assert self.handshake is not None
        return LiveChannel(path=self.handshake.path, config=CHANNEL_CONFIG)

    def kill(self) -> None:
        """SIGKILL."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> bool:
        """End it; whether it ended by itself when its stdin was closed."""
        by_itself = True
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    by_itself = False
                    with suppress(ProcessLookupError):
                        self._process.send_signal(number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_SECONDS):
                        await self._process.wait()
                    break
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._sockets.close()
        if self._process is not None:
            # Children of the plugin may hold its pipes open; nobody here waits for them.
            self._process._transport.close()  # type: ignore[attr-defined]
        return by_itself

    async def _log(self, pipe: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await pipe.readline()
            except ValueError:
                continue  # a part of a line that is too long
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            self._last = [*self._last[-_LAST_LINES:], text]
            self._say(text)

    async def _watch(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self.ended.set()

    def _with_words(self, what: str) -> str:
        words = f"; its last words: {' / '.join(self._last)}" if self._last else ""
        return f"{self.program} {what}{words}"
