"""Opens shells in jobs of a gitlab-runner: connects to its session server, as GitLab does for its web terminal.

The cell does here what a Remuda manager does for its own jobs: it forwards bytes between the streams of a shell and the
terminal, a WebSocket with GitLab's sub-protocol `terminal.gitlab.com`. The runner has named the address and the
certificate that is trusted, so neither the server nor the runner is trusted: redirects are not followed, messages are
small, and each wait has a limit. If this process dies, the shell ends after a while, because nobody reads its input."""

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from remuda.cell.errors import CellError, ConflictError
from remuda.cell.shells.port import INPUT, OUTPUT, About, RunnerSession
from remuda.cell.shells.shells import Shells
from remuda.lib.waiting import unwrap_group_error
from remuda.telemetry.logs import logger
from remuda.wire.shell import DATA, END, OPENED, TO_COMMAND, FrameError, Frames, exit_frame, frame, refusal_frame

if TYPE_CHECKING:
    import aiohttp

PROTOCOL = "terminal.gitlab.com"
CONNECT_SECONDS = 20.0
PING_SECONDS = 30.0
SEND_SECONDS = 30.0
"""How long a session server may take to read what the user typed."""
_RETRY_SECONDS = 0.1
LARGEST_MESSAGE_BYTES = 512 * 1024
_END_OF_INPUT = b"\x04"
_REASONS = {
    401: "the runner does not accept the authorization that it gave with the job",
    404: "the runner does not know the session any more: the job has ended",
    423: "another user is connected to the terminal of this job, and gitlab-runner allows only one",
    503: "the job has no terminal yet, or its executor offers none",
}

_log = logger("cell")


class RunnerSessions:
    def __init__(self, shells: Shells) -> None:
        self._shells = shells

    async def watch(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, serve the shells in jobs of gitlab-runners that this process has opened."""
        async with asyncio.TaskGroup() as group:
            taking = group.create_task(self._take(), name="cell runner sessions: new shells")
            await stop.wait()
            taking.cancel()

    async def _take(self) -> None:
        async with asyncio.TaskGroup() as shells:
            while True:
                about, session = await self._shells.in_sessions.get()
                shells.create_task(self._serve(about, session), name=f"cell runner session of shell {about.id}")

    async def _serve(self, about: About, session: RunnerSession) -> None:
        output = _Output(self._shells, about)
        reason = "it has ended"
        try:
            if about.command or not about.terminal:
                reason = "gitlab-runner offers only an interactive terminal, no single command; leave the command out"
                await output.write(refusal_frame(reason))
            else:
                await self._connect(about, session, output)
        except _RefusedError as error:
            reason = str(error)
            await output.write(refusal_frame(reason))
        except (CellError, FrameError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - one shell must not end the others, nor the cell
            reason = "the cell failed to serve it"
            _log.error("cannot serve a shell at the session server of a runner", job=about.job_id, error=repr(error))
        finally:
            self._shells.close(about, reason)

    async def _connect(self, about: About, session: RunnerSession, output: "_Output") -> None:
        """Open the terminal and forward bytes until one side ends. Raises _RefusedError if it cannot be opened."""
        import aiohttp  # imported here: few cells have such runners

        tracing = aiohttp.TraceConfig()
        tracing.on_request_redirect.append(_refuse_redirect)
        try:
            context = ssl.create_default_context(cadata=session.certificate or None)
            async with aiohttp.ClientSession(trace_configs=[tracing]) as client:
                async with asyncio.timeout(CONNECT_SECONDS):
                    socket = await client.ws_connect(
                        f"{session.url.replace('https://', 'wss://', 1)}/exec",
                        protocols=(PROTOCOL,),
                        headers={"Authorization": session.authorization},
                        ssl=context,
                        heartbeat=PING_SECONDS,
                        max_msg_size=LARGEST_MESSAGE_BYTES,
                    )
                async with socket:
                    await output.write(frame(OPENED))
                    async with unwrap_group_error(), asyncio.TaskGroup() as group:
                        sending = group.create_task(self._send(about, socket), name=f"input of shell {about.id}")
                        await _receive(socket, output)
                        sending.cancel()
                    await output.write(exit_frame(0))
        except aiohttp.WSServerHandshakeError as error:
            raise _RefusedError(_REASONS.get(error.status, f"the runner answered {error.status}")) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            _log.info("cannot reach the session server of a runner", job=about.job_id, error=str(error))
            reason = str(error) or "no answer"
            raise _RefusedError(f"the session server of the runner cannot be reached: {reason}") from None

    async def _send(self, about: About, socket: "aiohttp.ClientWebSocketResponse") -> None:
        """Send what the user types. gitlab-runner has no message for the size of the terminal."""
        frames, offset = Frames(TO_COMMAND), 0
        while True:
            piece = await self._shells.read(about, INPUT, offset)
            offset += len(piece.data)
            for kind, data in frames.feed(piece.data):
                if kind in (DATA, END):
                    try:
                        async with asyncio.timeout(SEND_SECONDS):
                            await socket.send_bytes(data if kind == DATA else _END_OF_INPUT)
                    except TimeoutError:
                        reason = f"the session server of the runner did not read the input for {SEND_SECONDS:g} s"
                        raise _RefusedError(reason) from None
            if piece.state == "over":
                await socket.close()
                return
            if not piece.data:
                # While the process stops, `read` returns without waiting.
                await asyncio.sleep(_RETRY_SECONDS)


async def _receive(socket: "aiohttp.ClientWebSocketResponse", output: "_Output") -> None:
    """Store what the terminal prints until it ends. Raises _RefusedError if the connection breaks."""
    import aiohttp

    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            await output.write(frame(DATA, message.data))
        elif message.type is aiohttp.WSMsgType.TEXT:
            await output.write(frame(DATA, message.data.encode()))
        elif message.type is aiohttp.WSMsgType.ERROR:
            raise _RefusedError(f"the connection to the session server of the runner broke: {message.data}")
        if output.is_over:
            return


async def _refuse_redirect(*_: Any) -> None:
    raise _RefusedError("the session server of the runner redirects, which is not followed")


class _RefusedError(Exception):
    """The terminal cannot be opened, or it broke; the message is for the user."""


class _Output:
    """Appends frames to the output of a shell."""

    def __init__(self, shells: Shells, about: About) -> None:
        self._shells = shells
        self._about = about
        self._offset = 0
        self.is_over = False

    async def write(self, data: bytes) -> None:
        """Append bytes. Waits for a slow reader; drops them if the shell is over. Raises CellError if a manager with
        the token of the runner has written to the shell, too."""
        while not self.is_over:
            appended = await self._shells.append(self._about, OUTPUT, self._offset, data)
            if appended.taken:
                self._offset += len(data)
                return
            self.is_over = self._shells.state(self._about)[0] == "over"
            if not self.is_over and appended.size != self._offset:
                raise ConflictError("its runner wrote to it, although it named a session server for it")
            # While the process stops, `append` refuses without waiting.
            await asyncio.sleep(_RETRY_SECONDS)
