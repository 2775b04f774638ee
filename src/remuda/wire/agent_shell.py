"""Client of the agent's `Shell` call: runs a command or an interactive shell in the environment of a job."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from grpclib.client import Stream

from remuda.wire.agent_client import (
    AgentClient,
    AgentRefusedError,
    AgentUnavailableError,
    reset_stream,
    translate_errors,
)
from remuda.wire.proto import agent_pb2 as pb


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    command: Sequence[str] = ()
    """Empty: an interactive shell."""
    terminal: bool = True
    columns: int = 80
    rows: int = 24
    term: str = ""


class ShellOpened(msgspec.Struct, frozen=True):
    """First event of a shell: the command has started."""


class ShellData(msgspec.Struct, frozen=True):
    data: bytes
    is_error: bool = False
    """Written to stderr. With a terminal, stdout and stderr are one stream."""


class ShellExit(msgspec.Struct, frozen=True):
    """Last event of a shell: the command has ended."""

    code: int


ShellEvent = ShellOpened | ShellData | ShellExit


class AgentShell:
    """A running command in a job's environment. Iterate over its events in one task, send input from another."""

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
        raise AgentUnavailableError("the agent ended the shell without an exit code")


@asynccontextmanager
async def open_shell(client: AgentClient, job_id: str, command: ShellCommand) -> AsyncIterator[AgentShell]:
    """Start a command in the environment of a job, and end it at the end of the `async with` block. If the agent
    refuses the command, iterating over the shell raises AgentRefusedError."""
    opening = pb.ShellOpen(
        id=job_id,
        command=command.command,
        terminal=command.terminal,
        size=pb.TerminalSize(columns=command.columns, rows=command.rows),
        term=command.term,
    )
    async with AsyncExitStack() as stack:
        with translate_errors():
            stream = await client.stub.Shell.open().__aenter__()
            stack.push_async_callback(reset_stream, stream)
            await stream.send_message(pb.ShellInput(open=opening))
        yield AgentShell(stream)
