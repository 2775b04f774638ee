"""gRPC channel to a machine's agent through the byte stream of a plugin's Connect call. If more than `MOST_BYTES`
wait to be sent to the plugin, the channel's writers pause until less than half of that waits."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from grpclib import GRPCError
from grpclib.client import Channel, Stream
from grpclib.const import Status
from grpclib.exceptions import ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from remuda.lib.tasks import TaskOwner
from remuda.wire.agent_client import CHANNEL_CONFIG
from remuda.wire.proto import environment_pb2 as pb
from remuda.wire.proto.environment_grpc import EnvironmentStub

MOST_BYTES = 1024 * 1024
"""Bytes that may wait to be sent."""
CHUNK_BYTES = 256 * 1024
CONNECT_SECONDS = 120.0
_ENDS = (GRPCError, ProtocolError, StreamTerminatedError, OSError)


class Tunnel(Channel):
    """A gRPC channel to a machine's agent whose only connection goes through the Connect call of a plugin."""

    def __init__(self, outer: Channel, machine: str) -> None:
        super().__init__(path="plugin", config=CHANNEL_CONFIG)
        self._outer = outer
        self._machine = machine
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inner = self._protocol_factory()
        self._tasks = TaskOwner()
        self._task = self._tasks.start(self._carry(), name=f"tunnel to {machine}")
        self._transport = _Transport(self._task)
        self._is_used = False

    async def wait_open(self) -> None:
        """Wait until the plugin reports that the agent is connected. Raises the errors of the Connect call, and
        TimeoutError after `CONNECT_SECONDS`."""
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.shield(self._opened)

    async def _create_connection(self) -> H2Protocol:
        if self._is_used or self._task.done():
            raise ConnectionError("the connection through the plugin is lost")
        self._is_used = True
        return self._inner

    def close(self) -> None:
        super().close()
        self._tasks.cancel()

    async def _carry(self) -> None:
        try:
            async with EnvironmentStub(self._outer).Connect.open() as stream:
                await stream.send_message(pb.Bytes(machine=self._machine))
                if await stream.recv_message() is None:
                    await stream.recv_trailing_metadata()
                    raise GRPCError(Status.UNAVAILABLE, "the plugin ended the call without an answer")
                self._inner.connection_made(self._transport)
                self._transport.protocol = self._inner
                self._opened.set_result(None)
                await self._pass_on(stream)
        except asyncio.CancelledError:
            self._opened.cancel()
            raise
        except _ENDS as error:
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            self._outer.close()
            if self._transport.protocol is not None:
                self._transport.is_over = True
                self._inner.connection_lost(None)

    async def _pass_on(self, stream: Stream[pb.Bytes, pb.Bytes]) -> None:
        # Not a TaskGroup: when sending fails, what the plugin has sent is still received.
        tasks = TaskOwner()
        tasks.start(self._transport.send_all(stream), name=f"tunnel to {self._machine}: out")
        try:
            while (message := await stream.recv_message()) is not None:
                self._inner.data_received(message.data)
        finally:
            await tasks.close()


class _Transport(asyncio.Transport):
    """asyncio transport whose writes go to the Connect call. Writes after the end of the call are dropped."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        super().__init__()
        self.protocol: H2Protocol | None = None
        self.is_over = False
        self._task = task
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_paused = False
        self._wake = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.is_over

    def write(self, data: Any) -> None:
        if self.is_over:
            return
        self._waiting.append(bytes(data))
        self._size += len(data)
        self._wake.set()
        if self._size > MOST_BYTES and not self._is_paused and self.protocol is not None:
            self._is_paused = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._task.cancel()

    async def send_all(self, stream: Stream[pb.Bytes, pb.Bytes]) -> None:
        """Send the written bytes until cancelled or the call ends; the task that reads reports the end of the call."""
        with suppress(*_ENDS):
            await self._send_until_cancelled(stream)

    async def _send_until_cancelled(self, stream: Stream[pb.Bytes, pb.Bytes]) -> None:
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                while self._waiting and len(data) < CHUNK_BYTES:
                    data += self._waiting.popleft()
                await stream.send_message(pb.Bytes(data=data))
                self._size -= len(data)
                if self._is_paused and self._size < MOST_BYTES // 2 and self.protocol is not None:
                    self._is_paused = False
                    self.protocol.resume_writing()
            self._wake.clear()
            await self._wake.wait()


async def open_tunnel(outer: Channel, machine: str) -> Tunnel:
    """Open a tunnel to the agent of a machine and wait until it is connected. `outer`: a channel to the plugin that
    only this tunnel uses and closes. Raises the errors of the plugin's Connect call."""
    tunnel = Tunnel(outer, machine)
    try:
        await tunnel.wait_open()
    except BaseException:
        tunnel.close()
        raise
    return tunnel
