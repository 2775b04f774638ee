"""A command beside a job, at the agent that has the job: one call, bytes both ways.

Nothing is decided here. `remuda.manager.jobs.shell` opens it for somebody who looks into a job; errors are those of
`agent_client`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
from grpclib.client import Stream

from remuda.wire.agent_client import AgentClient, AgentRefusedError, AgentUnavailableError, translate_errors
from remuda.wire.proto import agent_pb2 as pb


class ShellWish(msgspec.Struct, frozen=True, kw_only=True):
    """What to open."""

    command: Sequence[str] = ()
    """None: a shell."""
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""


class ShellOpened(msgspec.Struct, frozen=True):
    """It runs."""


class ShellData(msgspec.Struct, frozen=True):
    """What it printed."""

    data: bytes
    is_error: bool = False
    """On stderr, where that is apart."""


class ShellExit(msgspec.Struct, frozen=True):
    """It has ended; the last event."""

    code: int


ShellEvent = ShellOpened | ShellData | ShellExit


class AgentShell:
    """An open one. Iterate over it in one task, send from another."""

    def __init__(self, stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> None:
        self._stream = stream
        self._sending = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        await self._send(pb.ShellInput(data=data))

    async def resize(self, columns: int, rows: int) -> None:
        await self._send(pb.ShellInput(size=pb.TerminalSize(columns=columns, rows=rows)))

    async def end_input(self) -> None:
        await self._send(pb.ShellInput(end=True))

    async def _send(self, message: pb.ShellInput) -> None:
        async with self._sending:
            with translate_errors():
                await self._stream.send_message(message)

    async def __aiter__(self) -> AsyncIterator[ShellEvent]:
        with translate_errors():
            async for message in self._stream:
                match message.WhichOneof("output"):
                    case "opened":
                        yield ShellOpened()
                    case "data":
                        yield ShellData(message.data)
                    case "errors":
                        yield ShellData(message.errors, is_error=True)
                    case "exit_code":
                        yield ShellExit(message.exit_code)
                        return
                    case "refused":
                        raise AgentRefusedError(message.refused)
        raise AgentUnavailableError("the agent ended the shell without a word")


@asynccontextmanager
async def open_shell(client: AgentClient, job_id: str, wish: ShellWish) -> AsyncIterator[AgentShell]:
    """The command runs as long as this lasts, unless it ends before; refused by the agent it says why when read."""
    opening = pb.ShellOpen(
        id=job_id,
        command=wish.command,
        terminal=wish.terminal,
        size=pb.TerminalSize(columns=wish.columns, rows=wish.rows),
        term=wish.term,
    )
    async with AsyncExitStack() as stack:
        with translate_errors():
            stream = await client.stub.Shell.open().__aenter__()
            stack.push_async_callback(_leave, stream)
            await stream.send_message(pb.ShellInput(open=opening))
        yield AgentShell(stream)


async def _leave(stream: "Stream[pb.ShellInput, pb.ShellOutput]") -> None:
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.cancel()
    with suppress(AgentUnavailableError, AgentRefusedError), translate_errors():
        await stream.__aexit__(None, None, None)
