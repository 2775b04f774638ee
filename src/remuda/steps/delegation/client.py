"""The program that makes another agent run a part of a job: `remuda-agent delegate FILE`. FILE is the order
(`files.Order`): JSON with the steps to run and the command that connects to the other agent.

It prints the log of the other agent's job and exits with its exit code; SIGTERM cancels that job. The connection is the
stdin and stdout of a command (ssh, docker exec ...), which is restarted, with growing delays, when the connection
breaks. Progress is stored on disk (`files`), so this program may be killed and started again at any point. It gives up
when a connection breaks and none has brought output or results for the order's `patience_seconds`."""

import asyncio
import random
import signal
import socket as sockets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO

from grpclib import GRPCError
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.events import SendRequest, listen
from grpclib.exceptions import ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from remuda.lib.backoff import Backoff
from remuda.lib.clock import Clock, SystemClock
from remuda.lib.files import write_all
from remuda.steps.delegation.files import Order, PlainLog, Returns
from remuda.steps.job_files.data_folder import TOKEN_KEY
from remuda.wire.http2 import LiveChannel
from remuda.wire.proto import agent_pb2 as pb
from remuda.wire.proto.agent_grpc import AgentStub

SYSTEM_FAILURE = "runner_system_failure"
END_SECONDS = 10.0
"""Time limit for closing the job in the other agent."""
_BACKOFF = Backoff(first_seconds=0.2, ceiling_seconds=10.0)
_REFUSALS = frozenset(
    {Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED, Status.FAILED_PRECONDITION, Status.PERMISSION_DENIED}
    | {Status.UNAUTHENTICATED}
)
_WINDOWS = Configuration(http2_stream_window_size=1024 * 1024, http2_connection_window_size=8 * 1024 * 1024)


class _LostError(Exception):
    """Raised if the other agent cannot be reached now; `_persist` tries again."""


class _FinalError(Exception):
    """Raised if the delegated job has failed permanently, so that a retry does not help."""


class CommandChannel(LiveChannel):
    """A gRPC channel over stdin and stdout of a command; each connection starts the command once."""

    def __init__(self, order: Order) -> None:
        super().__init__(path=order.command[0], config=_WINDOWS)
        self._order = order
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        if order.token:
            listen(self, SendRequest, self._add_token)

    async def _create_connection(self) -> H2Protocol:
        """Start the command. One socket is its stdin and stdout, because the gRPC library needs a socket."""
        ours, theirs = sockets.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *self._order.command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
                env=None if self._order.connection_env is None else dict(self._order.connection_env),
            )
        _, protocol = await asyncio.get_running_loop().create_connection(self._protocol_factory, sock=ours)
        return protocol

    async def end(self) -> str:
        """Close the connection and end the command; return a text with its exit code and the end of its stderr."""
        self.close()
        text = ""
        if self._process is not None:
            code = await self._wait_for_command(self._process)
            self._stderr.seek(0)
            errors = self._stderr.read()[-2000:].decode("utf-8", "replace").strip()
            text = f"`{' '.join(self._order.command)}` ended with {code}" + (f": {errors}" if errors else "")
        self._stderr.close()
        return text

    async def _wait_for_command(self, process: asyncio.subprocess.Process) -> int:
        # The command usually ends with the connection; its own exit code says more than that of a signal.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    return await process.wait()
            with suppress(ProcessLookupError):
                process.send_signal(number)
        return await process.wait()

    async def _add_token(self, event: SendRequest) -> None:
        event.metadata[TOKEN_KEY] = self._order.token


CONFIRM_BYTES = 1024 * 1024
"""Number of log bytes after which the position is confirmed to the other agent."""


class Delegate:
    def __init__(self, order: Order, clock: Clock) -> None:
        self._order = order
        self._clock = clock
        self._returns = Returns(order.results)
        self._cancelled = asyncio.Event()

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._cancelled.set)
        while self._returns.end is None:
            try:
                await self._persist()
            except _FinalError as error:
                self._end_line()
                write_all(1, f"ERROR: {error}\n".encode())
                self._returns.finish(status="failure", reason=SYSTEM_FAILURE, exit_code=-1, message=str(error))
        if not self._returns.end.get("held"):
            await self.close()
        return self._returns.exit_code

    async def close(self) -> None:
        """Make the other agent kill the job and delete its data. Ignores errors: the other machine may be gone."""
        with suppress(_LostError, _FinalError, TimeoutError):
            async with asyncio.timeout(END_SECONDS), self._connect() as stub:
                await stub.Close(pb.CloseRequest(id=self._order.id))

    async def _persist(self) -> None:
        """Connect to the other agent, again after each lost connection, until the job has ended. Raises _FinalError if
        a connection is lost after `patience_seconds` without output or results."""
        failures, reached_at = 0, self._clock.monotonic()
        while True:
            began = self._returns.log_offset, self._returns.next_seq
            try:
                return await self._attend()
            except _LostError as error:
                if began != (self._returns.log_offset, self._returns.next_seq):
                    failures, reached_at = 0, self._clock.monotonic()
                if self._clock.monotonic() - reached_at >= self._order.patience_seconds:
                    raise _FinalError(
                        f"the agent of the environment has been out of reach for {self._order.patience_seconds:.0f} s: "
                        f"{error}"
                    ) from None
            failures += 1
            await self._clock.sleep(_BACKOFF.delay(failures, jitter=random.random()))

    async def _attend(self) -> None:
        """Connect once, start the job if needed, pass on its output to the end. Raises _LostError on disconnection."""
        async with self._connect() as stub:
            if not self._returns.is_started:
                if self._cancelled.is_set():
                    # It may have been started although the answer was lost.
                    await stub.Close(pb.CloseRequest(id=self._order.id))
                    self._returns.finish(status="cancelled", reason="job_canceled", exit_code=-1, message="cancelled")
                    return
                await stub.Start(self._order.request())
                self._returns.note_started()
            async with asyncio.TaskGroup() as tasks:
                canceller = tasks.create_task(self._cancel_there(stub), name="cancel")
                await self._pass_on(stub)
                canceller.cancel()

    async def _cancel_there(self, stub: AgentStub) -> None:
        await self._cancelled.wait()
        await stub.Cancel(pb.CancelRequest(id=self._order.id))

    async def _pass_on(self, stub: AgentStub) -> None:
        returns = self._returns
        log = PlainLog(returns)
        confirmed = returns.log_offset
        async with stub.Watch.open() as stream:
            place = pb.Subscribe(id=self._order.id, log_offset=returns.log_offset, result_seq=returns.next_seq)
            await stream.send_message(pb.WatchRequest(subscribe=place))
            async for event in stream:
                match event.WhichOneof("event"):
                    case "log" if event.log.offset == log.offset:
                        try:
                            text, offset, holds_line_end = log.feed(event.log.data)
                        except ValueError as error:
                            raise _FinalError(f"the agent of the environment sent an invalid log: {error}") from None
                        write_all(1, text)
                        returns.note_log(offset, holds_line_end=holds_line_end)
                        if offset - confirmed >= CONFIRM_BYTES:
                            confirmed = offset
                            confirm = pb.Confirm(id=self._order.id, log_offset=offset, result_seq=returns.next_seq)
                            await stream.send_message(pb.WatchRequest(confirm=confirm))
                    case "result" if event.result.seq == returns.next_seq:
                        try:
                            returns.add(event.result.json)
                        except ValueError as error:
                            raise _FinalError(f"the agent of the environment sent an invalid result: {error}") from None
                    case "end":
                        self._end_line()
                        end = event.end
                        returns.finish(
                            status=end.status,
                            reason=end.reason,
                            exit_code=end.exit_code,
                            message=end.message,
                            is_held=end.held_seconds > 0,
                        )
                        await stream.cancel()
                        return
                    case "unknown":
                        raise _FinalError("the agent of the environment has lost the job: was its machine replaced?")
                    case _:
                        raise _LostError("the agent of the environment sent log or results out of order")
        raise _LostError("the agent of the environment ended the stream")

    def _end_line(self) -> None:
        if self._returns.holds_line_end:
            write_all(1, b"\n")
            self._returns.note_log(self._returns.log_offset, holds_line_end=False)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AgentStub]:
        """Yield a gRPC client of the other agent over a new connection. Errors in the `with` block are raised as
        `_FinalError` if the other agent refuses the job, as `_LostError` if the connection or a call fails."""
        channel = CommandChannel(self._order)
        reason = ""
        try:
            yield AgentStub(channel)
        except BaseException as error:  # noqa: BLE001 - raised again, translated
            reason = await channel.end()
            raise _translate_error(error, reason) from None
        await channel.end()


def _translate_error(error: BaseException, reason: str) -> BaseException:
    if isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, GRPCError):
        text = f"{error.message or error.status.name}"
        if error.status in _REFUSALS:
            return _FinalError(f"the agent of the environment refuses the job: {text}")
        return _LostError(f"{text}; {reason}")
    # The library raises this for a connection that ended before the first call.
    ended_early = isinstance(error, AttributeError) and error.name == "_transport"
    if ended_early or isinstance(error, StreamTerminatedError | ProtocolError | OSError):
        return _LostError(reason or str(error))
    return error


async def delegate(order: Order) -> int:
    return await Delegate(order, SystemClock()).run()


async def end(order: Order) -> int:
    """Make the other agent kill an order's job and delete its data. Returns exit code 0 also if that fails."""
    await Delegate(order, SystemClock()).close()
    return 0
