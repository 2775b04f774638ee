"""gRPC client of an environment plugin. Calls raise the errors of `environments.errors`. Watch, Acquire and
Connect have a connection of their own; the other calls share one. No call is retried."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpclib import GRPCError
from grpclib.const import Status
from grpclib.exceptions import ProtocolError, StreamTerminatedError

from remuda.environments.errors import ConfigurationError, LostError, TemporaryError
from remuda.environments.host import EnvironmentProcess
from remuda.environments.tunnel import Tunnel, open_tunnel
from remuda.environments.values import Folders, Place, to_wire
from remuda.lib.connection_errors import explain_local
from remuda.wire.proto import environment_pb2 as pb
from remuda.wire.proto.environment_grpc import EnvironmentStub

FOR_GOOD = (Status.FAILED_PRECONDITION, Status.NOT_FOUND)
CALL_SECONDS = 600.0
"""Deadline of all calls except Watch, Acquire and Connect. It equals the time limit of a hook."""


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate gRPC and connection errors to those of `environments.errors`. `what` names the call in the text."""
    try:
        yield
    except GRPCError as error:
        if error.status is Status.DEADLINE_EXCEEDED and not error.message:
            # The gRPC library of the plugin noticed the timeout first.
            raise TemporaryError(f"the plugin has not answered {what} in time") from error
        text = error.message or error.status.name
        if error.status in FOR_GOOD:
            raise LostError(text) from error
        if error.status is Status.INVALID_ARGUMENT:
            raise ConfigurationError(text) from error
        if error.status is Status.UNIMPLEMENTED:
            raise LostError(f"the plugin does not implement {what}") from error
        raise TemporaryError(text) from error
    except TimeoutError as error:
        raise TemporaryError(f"the plugin has not answered {what} in time") from error
    except (ProtocolError, StreamTerminatedError, OSError) as error:
        raise TemporaryError(f"the plugin cannot be reached: {explain_local(error)}") from error


class PluginClient:
    def __init__(self, process: EnvironmentProcess) -> None:
        self._process = process
        self._channel = process.channel()
        self._stub = EnvironmentStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    async def open(self, config: dict[str, Any], *, version: int, folder: Path, runner: str) -> None:
        request = pb.OpenRequest(version=version, config=json.dumps(config), folder=str(folder), runner=runner)
        with translate_errors("Open"):
            await self._stub.Open(request, timeout=CALL_SECONDS)

    async def watch(self) -> AsyncIterator[int | None]:
        """Yield the plugin's limit on concurrent jobs (None: no limit), now and whenever it changes. Never ends: raises
        TemporaryError when the plugin ends the call."""
        channel = self._process.channel()
        try:
            with translate_errors("Watch"):
                async with EnvironmentStub(channel).Watch.open() as stream:
                    await stream.send_message(pb.WatchRequest(), end=True)
                    async for standing in stream:
                        yield standing.capacity if standing.HasField("capacity") else None
        finally:
            channel.close()
        raise TemporaryError("the plugin has ended Watch")

    async def acquire(self, place: Place) -> str:
        channel = self._process.channel()
        try:
            with translate_errors("Acquire"):
                answer = await EnvironmentStub(channel).Acquire(pb.AcquireRequest(place=to_wire(place)))
        finally:
            channel.close()
        if not answer.machine:
            raise TemporaryError("the plugin returned a machine without a name")
        return answer.machine

    async def adopt(self, place: Place, machine: str) -> None:
        with translate_errors("Adopt"):
            await self._stub.Adopt(_to_held(place, machine), timeout=CALL_SECONDS)

    async def prepare(self, place: Place, machine: str) -> Folders:
        with translate_errors("Prepare"):
            answer = await self._stub.Prepare(_to_held(place, machine), timeout=CALL_SECONDS)
        if not all(path.startswith("/") for path in (answer.work_dir, answer.builds_dir, answer.cache_dir)):
            paths = f"{answer.work_dir!r}, {answer.builds_dir!r}, {answer.cache_dir!r}"
            raise LostError(f"the plugin's folders are not absolute paths: {paths}")
        return Folders(work_dir=answer.work_dir, builds_dir=answer.builds_dir, cache_dir=answer.cache_dir)

    async def before(self, place: Place, machine: str) -> str:
        with translate_errors("Before"):
            return (await self._stub.Before(_to_held(place, machine), timeout=CALL_SECONDS)).text

    async def after(self, place: Place, machine: str) -> str:
        with translate_errors("After"):
            return (await self._stub.After(_to_held(place, machine), timeout=CALL_SECONDS)).text

    async def connect(self, machine: str) -> Tunnel:
        with translate_errors("Connect"):
            return await open_tunnel(self._process.channel(), machine)

    async def recover(self) -> Sequence[str]:
        with translate_errors("Recover"):
            return list((await self._stub.Recover(pb.RecoverRequest(), timeout=CALL_SECONDS)).machines)

    async def usage(self) -> int:
        with translate_errors("Usage"):
            return (await self._stub.Usage(pb.UsageRequest(), timeout=CALL_SECONDS)).disk_free_bytes

    async def clean_up(self, place: Place, machine: str) -> None:
        with translate_errors("CleanUp"):
            await self._stub.CleanUp(_to_held(place, machine), timeout=CALL_SECONDS)


def _to_held(place: Place, machine: str) -> pb.Held:
    return pb.Held(place=to_wire(place), machine=machine)
