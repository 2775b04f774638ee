"""Turns a `Plugin` into a program: prints the handshake, serves gRPC calls, and ends on SIGTERM, or when the host
closes the plugin's stdin or dies. What the plugin prints goes to stderr, which the host logs."""

import asyncio
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.server import Server, Stream

from remuda.environments.errors import ConfigurationError, LostError, TemporaryError
from remuda.environments.handshake import COOKIE, SOCKETS, Handshake
from remuda.environments.plugin import Connection, Plugin
from remuda.environments.values import from_wire
from remuda.lib import event_loop
from remuda.plugins.serving import listen, receive, reserve_stdout, unary
from remuda.wire.proto import environment_pb2 as pb
from remuda.wire.proto.environment_grpc import EnvironmentBase

LOOK_SECONDS = 0.2
"""Interval between reads of the capacity."""
CHUNK_BYTES = 64 * 1024


def serve(plugin: Plugin) -> int:
    """Run the plugin as a program until the host ends it. Returns the exit code."""
    if COOKIE not in os.environ:
        sys.stderr.write(
            "This is an environment plugin of Remuda: a manager starts it when a runner in its config.toml has "
            '`executor = "plugin"` and names it in [runners.remuda.environment].\n'
            "To try it out: remuda environment check PATH-OF-THIS-PROGRAM\n"
        )
        return 1
    with reserve_stdout() as stdout:
        event_loop.run(_serve(plugin, stdout))
    return 0


async def _serve(plugin: Plugin, stdout: TextIO) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    threading.Thread(target=_until_stdin_ends, args=(loop, ended), name="stdin", daemon=True).start()
    async with listen(Server([_Service(plugin)]), os.environ.get(SOCKETS)) as path:
        stdout.write(f"{Handshake(versions=tuple(plugin.versions), path=str(path)).line}\n")
        stdout.flush()
        await ended.wait()
    await plugin.close()


def _until_stdin_ends(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(ended.set)


@contextmanager
def _as_status() -> Iterator[None]:
    try:
        yield
    except LostError as error:
        raise GRPCError(Status.FAILED_PRECONDITION, str(error)) from error
    except ConfigurationError as error:
        raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
    except TemporaryError as error:
        raise GRPCError(Status.UNAVAILABLE, str(error)) from error
    except NotImplementedError as error:
        raise GRPCError(Status.UNIMPLEMENTED, "the plugin does not have this method") from error
    except (GRPCError, OSError):
        raise
    except Exception as error:
        traceback.print_exc()
        raise GRPCError(Status.UNKNOWN, f"{type(error).__name__}: {error}") from error


_unary = unary(_as_status)


class _Service(EnvironmentBase):
    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._machines: dict[str, str] = {}  # by key of a job, as acquired in this process

    @_unary
    async def Open(self, request: pb.OpenRequest) -> pb.OpenResponse:  # noqa: N802
        await self._plugin.open(json.loads(request.config or "{}"), Path(request.folder))
        return pb.OpenResponse()

    async def Watch(self, stream: Stream[pb.WatchRequest, pb.Standing]) -> None:  # noqa: N802
        await receive(stream)
        last: pb.Standing | None = None
        while True:
            with _as_status():
                standing = pb.Standing(capacity=self._plugin.capacity())
            if standing != last:
                await stream.send_message(standing)
                last = standing
            await asyncio.sleep(LOOK_SECONDS)

    @_unary
    async def Acquire(self, request: pb.AcquireRequest) -> pb.AcquireResponse:  # noqa: N802
        machine = await self._plugin.acquire(from_wire(request.place))
        self._machines[request.place.key] = machine
        return pb.AcquireResponse(machine=machine)

    @_unary
    async def Adopt(self, held: pb.Held) -> pb.AdoptResponse:  # noqa: N802
        await self._plugin.adopt(from_wire(held.place), held.machine)
        return pb.AdoptResponse()

    @_unary
    async def Prepare(self, held: pb.Held) -> pb.Folders:  # noqa: N802
        folders = await self._plugin.prepare(from_wire(held.place), held.machine)
        return pb.Folders(work_dir=folders.work_dir, builds_dir=folders.builds_dir, cache_dir=folders.cache_dir)

    @_unary
    async def Before(self, held: pb.Held) -> pb.HookOutput:  # noqa: N802
        return pb.HookOutput(text=await self._plugin.before(from_wire(held.place), held.machine))

    @_unary
    async def After(self, held: pb.Held) -> pb.HookOutput:  # noqa: N802
        return pb.HookOutput(text=await self._plugin.after(from_wire(held.place), held.machine))

    async def Connect(self, stream: Stream[pb.Bytes, pb.Bytes]) -> None:  # noqa: N802
        first = await receive(stream)
        with _as_status():
            connection = await self._plugin.connect(first.machine)
        async with _close_after(connection):
            await stream.send_message(pb.Bytes())
            async with asyncio.TaskGroup() as group:
                inward = group.create_task(_inward(stream, connection), name=f"to {first.machine}")
                while data := await connection.reader.read(CHUNK_BYTES):
                    await stream.send_message(pb.Bytes(data=data))
                inward.cancel()

    @_unary
    async def Recover(self, _: pb.RecoverRequest) -> pb.RecoverResponse:  # noqa: N802
        return pb.RecoverResponse(machines=await self._plugin.recover())

    @_unary
    async def Usage(self, _: pb.UsageRequest) -> pb.UsageResponse:  # noqa: N802
        return pb.UsageResponse(disk_free_bytes=await self._plugin.usage())

    @_unary
    async def CleanUp(self, held: pb.Held) -> pb.CleanUpResponse:  # noqa: N802
        machine = held.machine or self._machines.get(held.place.key, "")
        if machine:
            await self._plugin.clean_up(from_wire(held.place), machine)
        self._machines.pop(held.place.key, None)
        return pb.CleanUpResponse()


async def _inward(stream: Stream[pb.Bytes, pb.Bytes], connection: Connection) -> None:
    try:
        while (message := await stream.recv_message()) is not None:
            connection.writer.write(message.data)
            await connection.writer.drain()
    except ConnectionError:
        return  # the agent is gone, which ends the other direction, too
    connection.writer.close()


@asynccontextmanager
async def _close_after(connection: Connection) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.shield(connection.close())
